"""What a tensor says about its buffers, and how their bytes are reached."""

import numpy as np

import hurray

# 4 x 64 weights as int8 with a scale for each row: two buffers.
with hurray.aligned_allocator():
    codes = np.arange(256, dtype=np.uint8).view(np.int8).reshape(4, 64)
    scales = np.full(4, 0.25, np.float32)

tensor = hurray.Tensor(
    codes,
    hurray.int8,
    codes.shape,
    aux_buffers=[scales],
    quantization=hurray.PerChannelAffine.symmetric(0, 1),
)

# One handle for each buffer, in the order of the descriptor. A handle is a row of facts: it holds
# no memory, so a list of them pins nothing.
handles = tensor.buffer_handles
assert len(handles) == tensor.buffer_count == 2
assert [handle.byte_size for handle in handles] == [256, 16]
for i, handle in enumerate(handles):
    # buffer(i) is the bytes themselves, uint8, where the owner has them.
    view = np.asarray(tensor.buffer(i))
    address = view.__array_interface__["data"][0]
    print(
        f"buffer {i}: {handle.byte_size:4} bytes at {address:#x}, aligned to {handle.alignment:4}, "
        f"{handle.sync_mode}, on {handle.device!r}"
    )
    assert view.dtype == np.uint8 and view.shape == (handle.byte_size,)
    assert address == (codes, scales)[i].__array_interface__["data"][0]
    # What is declared was measured on the address.
    assert handle.alignment >= hurray.MIN_BUFFER_ALIGNMENT
    assert address % handle.alignment == 0
    assert handle.sync_mode == "producer_synced"
    assert handle.device is tensor.device

# A view shares its bytes with the array that was given.
np.asarray(tensor.buffer(1)).view(np.float32)[2] = 0.5
assert scales[2] == 0.5

# After a handoff the rows are the same, and so are the addresses.
received = hurray.from_hurray(tensor)
assert received.buffer_handles == handles
assert np.shares_memory(np.asarray(received.buffer(0)), codes)
