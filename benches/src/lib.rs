#![doc = "Being written."]
