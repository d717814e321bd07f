"""More than one device."""

from device_work import Device, call, driver
from races import SIZE, address_of
from row import Skipped, row

import hurray


def two_devices():
    call(driver.cuInit(0))
    if call(driver.cuDeviceGetCount()) < 2:
        raise Skipped("one device")
    return Device(1), Device(0)


@row("Two devices: an export from device 1 while device 0 is current")
def export_from_another_device():
    second, first = two_devices()
    stream, target = stream_of(second)
    first.make_current()
    tensor = hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:1", stream=stream)
    address = address_of(tensor)
    stream.fill(address, 8, SIZE)
    ordered = hurray.from_dlpack(tensor.record(stream), stream=stream)
    assert (ordered.device.device_id, ordered.__dlpack_device__()) == (1, (2, 1))
    view = ordered.buffer(0, stream=stream)
    second.make_current()
    stream.copy(target, address, SIZE)
    del view
    assert stream.read(target, SIZE) == b"\x08" * SIZE
    return "`device_id` is kept, the values are right"


@row("Two devices: a stream of the other one is refused")
def stream_of_another_device():
    second, first = two_devices()
    first.make_current()
    here, _ = stream_of(first)
    there, _ = stream_of(second)
    tensor = hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:0", stream=here)
    try:
        tensor.order(there)
    except hurray.DeviceError as error:
        assert "device 0" in str(error) and "device 1" in str(error), error
        return f"DeviceError: {error}"
    raise AssertionError("a pointer of device 0 was handed out on a stream of device 1")


@row("Two devices: `to` waits across them")
def copy_across():
    second, first = two_devices()
    here, _ = stream_of(first)
    there, target = stream_of(second)
    first.make_current()
    tensor = hurray.empty((SIZE,), dtype=hurray.uint8, device="cuda:0", stream=here)
    address = address_of(tensor)
    here.fill(address, 0, SIZE)
    here.delay(20_000_000)
    here.fill(address, 5, SIZE)
    moved = tensor.to("cuda:1", stream=there)
    second.make_current()
    view = moved.buffer(0, stream=there)
    there.copy(target, address_of(view), SIZE)
    assert there.read(target, SIZE) == b"\5" * SIZE
    del view
    return "written on device 0 behind a kernel, read on device 1"


def stream_of(device):
    device.make_current()
    return device.stream(), device.alloc(SIZE)
