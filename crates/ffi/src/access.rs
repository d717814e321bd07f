//! Whether bytes may be given out.

use hurray_core::{BufferHandle, DeviceError, Stream, SyncMode};
use thiserror::Error;

use crate::{Buffer, BufferFlags, Place};

/// Who is going to use the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The host.
    Host,
    /// The device that holds the bytes, on whatever stream.
    Device,
    /// Work of a device or of the host that waits for the writes first.
    Ordered,
}

/// Bytes that are not given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The row names another place or mode than the bytes have.
    #[error(
        "buffer {buffer} is declared `{mode}` on {row}, and its bytes are on {found}: they are given out only after `.to(\"cpu\")` or \
         `.to(device)` has brought them together"
    )]
    Declared {
        /// The buffer's index.
        buffer: usize,
        /// The row's mode.
        mode: SyncMode,
        /// The row's device and class.
        row: Place,
        /// Where the bytes are.
        found: Place,
    },
    /// The bytes may still be written.
    #[error(
        "buffer {buffer} is `{mode}`: its bytes may still be written on {place}, and are given out only once they are `{}`; \
         `.synchronize()` waits for that, and `__hurray__` relays the tensor as it is",
        SyncMode::ProducerSynced
    )]
    NotReady {
        /// The buffer's index.
        buffer: usize,
        /// Its mode.
        mode: SyncMode,
        /// Where the bytes are.
        place: Place,
    },
    /// Nothing here can wait for the bytes.
    #[error(
        "buffer {buffer} is `{mode}` on {place}, and nothing came with it that can be waited for here: an event or stream, and a driver that knows it; \
         `__hurray__` relays the tensor as it is"
    )]
    NothingToWaitFor {
        /// The buffer's index.
        buffer: usize,
        /// Its mode.
        mode: SyncMode,
        /// Where the bytes are.
        place: Place,
    },
    /// Memory of the CPU, whose bytes no event is recorded for and no stream is noted.
    #[error(
        "buffer {buffer} is memory of the cpu, which is always `{}`: it takes no event and remembers no stream",
        SyncMode::ProducerSynced
    )]
    HostMemory {
        /// The buffer's index.
        buffer: usize,
    },
    /// The host cannot reach the bytes.
    #[error("buffer {buffer} is on {place}, which the host cannot read: `.to(\"cpu\")` copies it")]
    NotOnHost {
        /// The buffer's index.
        buffer: usize,
        /// Where the bytes are.
        place: Place,
    },
}

/// Whether the bytes of `buffer`, number `index` of its tensor and described there by `row`, may be used by `reach` now. Every way to the bytes asks
/// this, before it has done anything that others see.
///
/// # Errors
/// Why not, and what would work.
pub fn check(
    index: usize,
    row: &BufferHandle,
    buffer: &Buffer,
    reach: Reach,
) -> Result<(), AccessError> {
    let place = buffer.place();
    if buffer.flags().contains(BufferFlags::DECLARED) {
        return Err(AccessError::Declared {
            buffer: index,
            mode: row.sync_mode,
            row: Place {
                device: row.device,
                device_id: place.device_id,
                memory_class: row.memory_class,
            },
            found: place,
        });
    }
    let mode = buffer.mode();
    if mode != SyncMode::ProducerSynced {
        if reach != Reach::Ordered {
            return Err(AccessError::NotReady {
                buffer: index,
                mode,
                place,
            });
        }
        if buffer.dependency().is_none() {
            return Err(AccessError::NothingToWaitFor {
                buffer: index,
                mode,
                place,
            });
        }
    }
    if reach == Reach::Host && !place.is_host_accessible() {
        return Err(AccessError::NotOnHost {
            buffer: index,
            place,
        });
    }
    Ok(())
}

/// Whether work on `stream` may use the bytes of `buffer` where [`check`] finds that ordered work may: memory of one device is for that device's streams.
///
/// # Errors
/// [`DeviceError::OtherDevice`].
pub fn check_stream(buffer: &Buffer, stream: &Stream) -> Result<(), DeviceError> {
    let place = buffer.place();
    if place.is_host_accessible() {
        Ok(())
    } else {
        stream.require_device(place.device_id)
    }
}

#[cfg(test)]
mod tests {
    use hurray_core::{DeviceTag, MemoryClass};

    use super::*;
    use crate::{Callback, Owner, Readiness};

    fn buffer(place: Place, readiness: Readiness, flags: BufferFlags) -> Buffer {
        let nowhere = std::ptr::null_mut();
        // SAFETY: without a function nothing is called.
        let owner = Owner::Callback(unsafe { Callback::new(nowhere, nowhere, None) });
        // SAFETY: there are no bytes.
        unsafe { Buffer::from_owner(nowhere.cast(), 0, place, readiness, flags, owner) }.unwrap()
    }

    /// Every device, class, mode and flag: bytes are given out where they are ready, and to the host where it reaches them.
    #[test]
    fn only_ready_bytes_within_reach_are_given_out() {
        let modes = [
            SyncMode::ProducerSynced,
            SyncMode::Event,
            SyncMode::ConsumerStream,
        ];
        let mut given = 0;
        for device in DeviceTag::NAMED {
            for memory_class in MemoryClass::NAMED {
                for mode in modes {
                    let place = Place {
                        device,
                        device_id: 2,
                        memory_class,
                    };
                    let cpu_waits = device == DeviceTag::Cpu && mode != SyncMode::ProducerSynced;
                    if !memory_class.is_valid_on(device) || cpu_waits {
                        continue;
                    }
                    let plain = buffer(place, Readiness::from(mode), BufferFlags::empty());
                    let declared = buffer(place, Readiness::from(mode), BufferFlags::DECLARED);
                    let row = plain.handle();
                    for reach in [Reach::Host, Reach::Device, Reach::Ordered] {
                        let answer = check(7, &row, &plain, reach);
                        if mode != SyncMode::ProducerSynced && reach == Reach::Ordered {
                            let nothing = AccessError::NothingToWaitFor {
                                buffer: 7,
                                mode,
                                place,
                            };
                            assert_eq!(answer, Err(nothing));
                        } else if mode != SyncMode::ProducerSynced {
                            let not_ready = AccessError::NotReady {
                                buffer: 7,
                                mode,
                                place,
                            };
                            assert_eq!(answer, Err(not_ready));
                        } else if reach == Reach::Host && !place.is_host_accessible() {
                            assert_eq!(answer, Err(AccessError::NotOnHost { buffer: 7, place }));
                        } else {
                            assert_eq!(answer, Ok(()));
                            given += 1;
                        }
                        let error = check(7, &row, &declared, reach).unwrap_err();
                        assert!(matches!(error, AccessError::Declared { buffer: 7, .. }));
                        assert!(error.to_string().contains(&format!("`{mode}`")));
                    }
                }
            }
        }
        assert_eq!(given, 63);
    }
}
