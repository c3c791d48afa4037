//! Memory of the device: fenced, and filled with what no kernel expects.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// As CUDA and HIP align what they allocate: kernels may rely on it, and on no more.
const ALIGN: usize = 256;
/// Bytes of fence on either side.
const FENCE: usize = 1024;
/// As f32 and as bf16 the largest of all but a few, as f16 a NaN: who reads a fence is noticed.
const FENCE_BYTE: u8 = 0x7F;
/// What an allocation holds before anything is written to it.
const FRESH_BYTE: u8 = 0xA5;
/// What it holds when it is given back: who still reads it reads nothing that was.
const FREED_BYTE: u8 = 0x5A;

/// Where an allocation lies. The fences are on both sides of `len` bytes from `start` on.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a place says where an allocation lies; the memory is owned by one `SimtMemory`, which can be on any thread.
unsafe impl Send for Place {}

impl Place {
    /// The fence behind starts at the very end of the memory, so that one byte too many hits it.
    fn fences(&self) -> [(*const u8, isize); 2] {
        let start = self.start.as_ptr().cast_const();
        // The allocation has a fence before `start` and one behind `len`.
        [(start.wrapping_sub(FENCE), -(FENCE as isize)), (start.wrapping_add(self.len), self.len as isize)]
    }

    /// What was written where nothing may be written.
    fn damage(&self) -> Option<String> {
        for (fence, offset) in self.fences() {
            // SAFETY: both fences are inside the allocation and initialised, and no kernel runs.
            let bytes = unsafe { std::slice::from_raw_parts(fence, FENCE) };
            if let Some(place) = bytes.iter().position(|&byte| byte != FENCE_BYTE) {
                let at = offset + place as isize;
                return Some(format!("a write outside memory: at byte {at} of an allocation of {} bytes", self.len));
            }
        }
        None
    }
}

/// All live allocations of a device, and what was found wrong with those that are gone.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    live: Vec<Place>,
    damage: Option<String>,
}

impl Heap {
    /// The damage found so far, and what there is now.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        let found = self.damage.take().or_else(|| self.live.iter().find_map(Place::damage));
        found.map_or(Ok(()), Err)
    }
}

/// Memory of a [`SimtDevice`](crate::SimtDevice).
///
/// Its start is aligned as on a device. On either side lies a fence that is looked at after every launch, on download, and
/// when the memory is dropped; damage that a drop finds is the error of the device's next call.
#[derive(Debug)]
pub struct SimtMemory {
    place: Place,
    heap: Arc<Mutex<Heap>>,
}

impl SimtMemory {
    pub(crate) fn new(bytes: usize, heap: &Arc<Mutex<Heap>>) -> SimtMemory {
        let len = bytes.max(1);
        let layout = Self::layout(len);
        // SAFETY: the layout is not of size 0; the writes are inside of it.
        let start = unsafe {
            let Some(whole) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            whole.write_bytes(FENCE_BYTE, layout.size());
            let start = whole.add(FENCE);
            start.write_bytes(FRESH_BYTE, len);
            start
        };
        let place = Place { start, len };
        heap.lock().unwrap_or_else(PoisonError::into_inner).live.push(place);
        SimtMemory { place, heap: Arc::clone(heap) }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len + 2 * FENCE, ALIGN).expect("a size that an allocation can have")
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.place.len
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.place.start.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.place.len);
        // SAFETY: the memory has room for the bytes, and no kernel runs while it is borrowed.
        unsafe { self.place.start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
    }

    pub(crate) fn read(&self, bytes: &mut [u8]) {
        let len = bytes.len();
        assert!(len <= self.place.len, "{len} bytes of {} are read", self.place.len);
        // SAFETY: the memory is initialised and holds as many bytes, and launches end before they return.
        unsafe { self.place.start.copy_to_nonoverlapping(NonNull::from(bytes).cast(), len) }
    }
}

impl Drop for SimtMemory {
    fn drop(&mut self) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        heap.live.retain(|place| place.start != self.place.start);
        if heap.damage.is_none() {
            heap.damage = self.place.damage();
        }
        // SAFETY: allocated by `new` with this layout, and not used again. What is written is shown to somebody, or the compiler
        // would leave it out, as nobody reads memory that is given back.
        unsafe {
            self.place.start.write_bytes(FREED_BYTE, self.place.len);
            std::hint::black_box(self.place.start);
            dealloc(self.place.start.as_ptr().sub(FENCE), Self::layout(self.place.len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_notice_a_byte_on_either_side() {
        for offset in [-1, -1024, 10, 10 + 1023] {
            let heap = Arc::new(Mutex::new(Heap::default()));
            let memory = SimtMemory::new(10, &heap);
            assert_eq!(memory.address() % 256, 0);
            let mut bytes = [0; 10];
            memory.read(&mut bytes);
            assert_eq!(bytes, [0xA5; 10]);
            assert_eq!(heap.lock().unwrap().check(), Ok(()));
            // SAFETY: the byte is inside a fence.
            unsafe { memory.place.start.offset(offset).write(0) };
            let text = format!("a write outside memory: at byte {offset} of an allocation of 10 bytes");
            assert_eq!(heap.lock().unwrap().check(), Err(text.clone()));
            drop(memory);
            assert_eq!(heap.lock().unwrap().check(), Err(text));
            assert_eq!(heap.lock().unwrap().check(), Ok(()));
        }
    }
}
