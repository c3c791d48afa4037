"""Qrita by ctypes: the structs and functions of include/qrita.h, and nothing else. Needs Python alone.

    qrita = Library("target/release/libqrita_capi.so")
    sampler = qrita.sampler("cpu")
    qrita.run(sampler, Logits(address, F32, rows, vocab, vocab), qrita.params(top_k=50), qrita.outputs(token=address))

Addresses are of whoever has the memory: `array.array.buffer_info`, numpy's `ctypes.data`, torch's `data_ptr()`.
"""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

ABI = 1
F32, F16, BF16 = range(3)
LOWEST_ID, KEEP_ALL = range(2)
TOP_K_THEN_TOP_P, JOINT = range(2)
NO_TOKEN = 0xFFFFFFFF
NAN, POS_INF, EMPTY, OVERFLOW = 1, 2, 4, 8
CODES = ["OK", "PARAM", "LENGTH", "SHAPE", "UNSUPPORTED", "DEVICE", "POINTER", "ABI", "PANIC"]


class Logits(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_uint32),
        ("rows", c_size_t),
        ("vocab", c_size_t),
        ("stride", c_size_t),
    ]


class Params(Structure):
    _fields_ = [
        ("abi", c_uint32),
        ("draws", c_uint32),
        ("ties", c_uint32),
        ("order", c_uint32),
        ("temperature", c_float),
        ("top_k", c_uint32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("seed", c_uint64),
        ("position", c_uint64),
        ("stream", c_uint32),
        ("temperatures", c_void_p),
        ("top_ks", c_void_p),
        ("top_ps", c_void_p),
        ("min_ps", c_void_p),
        ("seeds", c_void_p),
        ("positions", c_void_p),
        ("streams", c_void_p),
    ]


class Outputs(Structure):
    _fields_ = [
        ("abi", c_uint32),
        ("mask", c_uint32),
        ("status", c_void_p),
        ("kept", c_void_p),
        ("token", c_void_p),
        ("logprob", c_void_p),
        ("raw_logprob", c_void_p),
        ("rank", c_void_p),
        ("probabilities", c_void_p),
        ("capacity", c_uint32),
        ("candidate_ids", c_void_p),
        ("candidate_logits", c_void_p),
        ("candidate_logprobs", c_void_p),
        ("top", c_uint32),
        ("top_ids", c_void_p),
        ("top_logprobs", c_void_p),
    ]


FUNCTIONS = {
    "qrita_params_init": [POINTER(Params)],
    "qrita_outputs_init": [POINTER(Outputs)],
    "qrita_create": [c_char_p, c_uint32, POINTER(c_void_p)],
    "qrita_destroy": [c_void_p],
    "qrita_run": [c_void_p, POINTER(Logits), POINTER(Params), POINTER(Outputs)],
    "qrita_cuda_create": [c_uint32, c_uint32, POINTER(c_void_p)],
    "qrita_cuda_destroy": [c_void_p],
    "qrita_cuda_workspace_bytes": [c_void_p, c_size_t, c_size_t, POINTER(c_size_t)],
    "qrita_cuda_row_args": [c_void_p, POINTER(Params), c_size_t, c_size_t, c_void_p],
    "qrita_cuda_launch": [
        c_void_p,
        c_void_p,
        POINTER(Logits),
        POINTER(Params),
        c_void_p,
        POINTER(Outputs),
        c_void_p,
        c_size_t,
    ],
}


class QritaError(Exception):
    """A call that was refused, or failed: `code` is one of CODES, the message names what was wrong."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


class Library:
    """The shared library. A sampler is an address, which its maker gives back by `destroy` or `cuda_destroy`."""

    def __init__(self, path: str):
        self.library = ctypes.CDLL(path)
        self.library.qrita_message.restype = c_char_p
        self.library.qrita_description.restype = c_char_p
        self.library.qrita_description.argtypes = [c_void_p]
        self.library.qrita_abi.restype = c_uint32
        self.library.qrita_cuda_row_args_bytes.restype = c_size_t
        for name, arguments in FUNCTIONS.items():
            function = getattr(self.library, name)
            function.argtypes, function.restype = arguments, c_int32
        if self.library.qrita_abi() != ABI:
            raise QritaError("ABI", f"the library is of ABI {self.library.qrita_abi()}, this file of {ABI}")

    def call(self, name: str, *arguments) -> None:
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise QritaError(CODES[code], self.library.qrita_message().decode())

    def params(self, **values) -> Params:
        """Parameters that filter nothing, but for these."""
        params = Params()
        self.call("qrita_params_init", byref(params))
        for name, value in values.items():
            setattr(params, name, value)
        return params

    def outputs(self, **values) -> Outputs:
        """Outputs that ask for nothing but these."""
        outputs = Outputs()
        self.call("qrita_outputs_init", byref(outputs))
        for name, value in values.items():
            setattr(outputs, name, value)
        return outputs

    def sampler(self, backend: str = "auto", threads: int = 0) -> c_void_p:
        sampler = c_void_p()
        self.call("qrita_create", backend.encode(), threads, byref(sampler))
        return sampler

    def description(self, sampler: c_void_p) -> str:
        return self.library.qrita_description(sampler).decode()

    def destroy(self, sampler: c_void_p) -> None:
        self.call("qrita_destroy", sampler)

    def run(self, sampler: c_void_p, logits: Logits, params: Params, outputs: Outputs) -> None:
        """Logits and outputs in host memory; returns when it is done."""
        self.call("qrita_run", sampler, byref(logits), byref(params), byref(outputs))

    def cuda_sampler(self, device: int, dtype: int) -> c_void_p:
        sampler = c_void_p()
        self.call("qrita_cuda_create", device, dtype, byref(sampler))
        return sampler

    def cuda_destroy(self, sampler: c_void_p) -> None:
        self.call("qrita_cuda_destroy", sampler)

    def cuda_workspace_bytes(self, sampler: c_void_p, rows: int, vocab: int) -> int:
        """Of device memory that is zeroed once."""
        size = c_size_t()
        self.call("qrita_cuda_workspace_bytes", sampler, rows, vocab, byref(size))
        return size.value

    def cuda_row_args(self, sampler: c_void_p, params: Params, rows: int, vocab: int) -> bytes:
        """The parameters of all rows, to be copied to the device."""
        size = self.library.qrita_cuda_row_args_bytes()
        memory = ctypes.create_string_buffer(rows * size)
        for row in range(rows):
            self.call(
                "qrita_cuda_row_args", sampler, byref(params), row, vocab, ctypes.addressof(memory) + row * size
            )
        return memory.raw

    def cuda_launch(
        self,
        sampler: c_void_p,
        stream: int,
        logits: Logits,
        params: Params,
        outputs: Outputs,
        workspace: int,
        workspace_bytes: int,
        row_args: int = 0,
    ) -> None:
        """Logits and outputs in device memory; returns when it is launched on the stream."""
        self.call(
            "qrita_cuda_launch",
            sampler,
            stream,
            byref(logits),
            byref(params),
            row_args,
            byref(outputs),
            workspace,
            workspace_bytes,
        )
