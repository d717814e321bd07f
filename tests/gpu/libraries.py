"""With PyTorch and CuPy themselves on the other side."""

import time

import numpy as np
from captures import busy_reclaimer
from cuda_programs import Offer
from device_work import Device
from hunt import hunt
from row import Skipped, row

import hurray

SIZE = 4 << 20
BOTH = ("torch", "cupy")


def cupy_view(address, owner):
    """An array over somebody's memory that waits for nothing and keeps nothing."""
    import cupy

    memory = cupy.cuda.UnownedMemory(address, SIZE, owner)
    return cupy.ndarray((SIZE,), cupy.uint8, memptr=cupy.cuda.MemoryPointer(memory, 0))


class Raw:
    """The same for torch, which ignores the entry that names a stream."""

    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "shape": (SIZE,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 2,
        }


def delay(stream_pointer, ticks):
    import torch

    with torch.cuda.stream(torch.cuda.ExternalStream(stream_pointer)):
        torch.cuda._sleep(ticks)


@row("torch writes on A, CuPy reads on B: `from_torch`, `to_cupy`", needs=BOTH, seconds=90)
def torch_to_cupy():
    import cupy
    import torch

    a, b = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    target = cupy.empty(SIZE, cupy.uint8)

    def attempt(ticks, ordered):
        x = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(a):
            torch.cuda._sleep(ticks)
            x.fill_(1)
            tensor = hurray.from_torch(x)
        with b:
            y = tensor.to_cupy() if ordered else cupy_view(x.data_ptr(), x)
            cupy.copyto(target, y)
        b.synchronize()
        seen = target.get()
        torch.cuda.synchronize()
        return bool((seen != 1).any())

    return hunt(attempt)


@row("CuPy writes on A, torch reads on B: `from_cupy`, `to_torch`", needs=BOTH, seconds=90)
def cupy_to_torch():
    import cupy
    import torch

    a, b = cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream()
    target = torch.empty(SIZE, dtype=torch.uint8, device="cuda")

    def attempt(ticks, ordered):
        x = cupy.zeros(SIZE, cupy.uint8)
        torch.cuda.synchronize()
        with a:
            delay(a.ptr, ticks)
            x.fill(1)
            tensor = hurray.from_cupy(x)
        with torch.cuda.stream(b):
            y = tensor.to_torch() if ordered else torch.as_tensor(Raw(x.data.ptr), device="cuda")
            target.copy_(y)
        b.synchronize()
        seen = target.cpu()
        torch.cuda.synchronize()
        return bool((seen != 1).any())

    return hunt(attempt)


@row("torch writes on A, CuPy reads on B: `cupy.from_dlpack(t)`", needs=BOTH, seconds=90)
def torch_to_cupy_by_dlpack():
    import cupy
    import torch

    a, b = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    target = cupy.empty(SIZE, cupy.uint8)

    def attempt(ticks, ordered):
        x = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(a):
            torch.cuda._sleep(ticks)
            x.fill_(1)
            tensor = hurray.from_torch(x)
        with b:
            y = cupy.from_dlpack(tensor) if ordered else cupy_view(x.data_ptr(), x)
            cupy.copyto(target, y)
        b.synchronize()
        seen = target.get()
        torch.cuda.synchronize()
        return bool((seen != 1).any())

    return hunt(attempt)


@row("CuPy reads on B, torch's allocator gets the block back and reuses it", needs=BOTH, seconds=90)
def torch_block_reused():
    import cupy
    import torch

    a, b = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    target = cupy.empty(SIZE, cupy.uint8)

    def attempt(ticks, ordered):
        with torch.cuda.stream(a):
            x = torch.full((SIZE,), 1, dtype=torch.uint8, device="cuda")
            tensor = hurray.from_torch(x)
        address = x.data_ptr()
        del x
        torch.cuda.synchronize()
        with b:
            delay(b.ptr, ticks)
            y = tensor.to_cupy() if ordered else cupy_view(address, None)
            cupy.copyto(target, y)
        del y, tensor
        # Long enough for a release that waits for nothing.
        time.sleep(0.002)
        with torch.cuda.stream(a):
            again = [torch.full((SIZE,), 9, dtype=torch.uint8, device="cuda") for _ in range(8)]
        b.synchronize()
        seen = target.get()
        torch.cuda.synchronize()
        del again
        return bool((seen != 1).any())

    return hunt(attempt)


@row("Ways in and out with torch and CuPy: modes, addresses, values", needs=BOTH, seconds=90)
def ways():
    import cupy
    import torch

    shown = 0
    x = torch.arange(4096, dtype=torch.float32, device="cuda")
    c = cupy.arange(4096, dtype=cupy.float32)
    with hurray.copies() as log:
        for name, tensor, address in (
            ("from_torch", hurray.from_torch(x), x.data_ptr()),
            ("from_cupy", hurray.from_cupy(c), c.data.ptr),
            ("from_dlpack(torch)", hurray.from_dlpack(x), x.data_ptr()),
            ("from_dlpack(cupy)", hurray.from_dlpack(c), c.data.ptr),
        ):
            assert tensor.buffer_handles[0].sync_mode == "consumer_stream", name
            assert tensor.device.kind == "cuda", name
            for way, get in (
                ("to_torch", lambda t: t.to_torch()),
                ("to_cupy", lambda t: t.to_cupy()),
                ("torch.from_dlpack", torch.from_dlpack),
                ("cupy.from_dlpack", cupy.from_dlpack),
                ("torch.as_tensor", lambda t: torch.as_tensor(t, device="cuda")),
                ("cupy.asarray", cupy.asarray),
            ):
                out = get(tensor)
                is_torch = isinstance(out, torch.Tensor)
                found = out.data_ptr() if is_torch else out.data.ptr
                total = float(out.sum())
                assert found == address, f"{name}, {way}: another address"
                assert total == 4096 * 4095 / 2, f"{name}, {way}: wrong values"
                shown += 1
        assert not log, log
    host = hurray.from_torch(x).to("cpu")
    assert (np.asarray(host) == c.get()).all()
    return f'{len(shown)} pairs at the producer\'s address, no copy; `to("cpu")` gives the values'


@row("Streams of torch and CuPy are accepted, their default ones too", needs=BOTH)
def streams():
    import cupy
    import torch

    x = torch.ones(1024, device="cuda")
    tensor = hurray.from_torch(x)
    given = [
        torch.cuda.Stream(),
        torch.cuda.default_stream(),
        torch.cuda.current_stream(),
        cupy.cuda.Stream(non_blocking=True),
        cupy.cuda.Stream.null,
        cupy.cuda.Stream.ptds,
        1,
        2,
        Device().stream(),
    ]
    for stream in given:
        assert tensor.order(stream).buffer_handles[0].sync_mode in ("consumer_stream", "event")
    for wrong in (0, True, -2):
        try:
            tensor.order(wrong)
        except ValueError:
            continue
        raise AssertionError(f"stream {wrong!r} was accepted")
    with torch.cuda.stream(given[0]):
        assert hurray.cuda.current_stream("cuda:0").__cuda_stream__()[1] == given[0].cuda_stream
    return f"{len(given)} streams; 0, True and -2 are a ValueError"


@row("JAX takes a tensor by DLPack", needs=("torch", "jax"), seconds=60)
def jax_takes_it():
    import jax
    import torch

    if jax.default_backend() != "gpu":
        raise Skipped("JAX is there without its CUDA plugin")
    x = torch.arange(1024, dtype=torch.float32, device="cuda")
    y = hurray.from_torch(x).to_jax()
    assert float(y.sum()) == 1024 * 1023 / 2
    assert y.unsafe_buffer_pointer() == x.data_ptr()
    return "at torch's address"


@row("`torch.cuda.graph`: our calls inside, the reclaimer busy", needs=("torch",), seconds=60)
def torch_graph():
    import torch

    device = Device()
    x = torch.full((1 << 20,), 3.0, device="cuda")
    ready = hurray.from_torch(x).synchronize()
    kept = []
    with busy_reclaimer(device) as released:
        end = time.monotonic() + 10
        while not released and time.monotonic() < end:
            time.sleep(0.001)
        for number in range(10):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = ready.to_torch() * 2
                # Written inside, handed on inside.
                z = hurray.from_torch(y).to_torch() + number
            kept.append((graph, y, z))
        for number, (graph, _, z) in enumerate(kept):
            graph.replay()
            torch.cuda.synchronize()
            assert bool((z == 6.0 + number).all()), number
        count = len(released)
    assert count, "the reclaimer had nothing to do"
    return f"10 graphs captured and replayed right, {count} owners let go of meanwhile"


@row("`torch.cuda.graph`: a tensor pending outside is refused inside", needs=("torch",))
def torch_graph_refuses():
    import torch

    side = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    text = None
    torch.zeros(1, device="cuda") + 1
    with torch.cuda.graph(graph):
        y = torch.ones(16, device="cuda") + 1
        # Queued on a stream that does not take part.
        with torch.cuda.stream(side):
            pending = hurray.from_torch(x)
        try:
            pending.to_torch()
        except hurray.DeviceError as error:
            text = str(error)
    assert text is not None, "bytes were handed out that nothing in the graph waits for"
    graph.replay()
    torch.cuda.synchronize()
    assert bool((y == 2).all())
    return f"DeviceError: {text}; the capture went on and replays right"


@row(
    "`expandable_segments:True`: tensors over several mappings",
    needs=BOTH,
    seconds=60,
    environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
)
def expandable_segments():
    import cupy
    import torch

    # 2 MiB pages each mapped by itself, so that this one spans many.
    x = torch.arange(64 << 20, dtype=torch.int32, device="cuda")
    segments = torch.cuda.memory_snapshot()
    if not any(segment.get("is_expandable") for segment in segments):
        raise Skipped("torch's allocator did not take the setting")
    tensor = hurray.from_torch(x)
    assert cupy.array_equal(tensor.to_cupy(), cupy.arange(64 << 20, dtype=cupy.int32))
    part = hurray.from_torch(x[40 << 20 :])
    assert int(part.to_cupy()[0]) == 40 << 20
    try:
        hurray.Tensor(Beyond(x), hurray.uint8, (x.nbytes + (1 << 40),))
    except hurray.BufferError:
        pass
    else:
        raise AssertionError("a range beyond the mappings was accepted")
    del x, part, tensor
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return "256 MiB and a slice of it accepted, values right; a range beyond it refused"


class Beyond:
    """Claims a tebibyte more than there is."""

    def __init__(self, x):
        self._x = x
        self.__cuda_array_interface__ = {
            "shape": (x.nbytes + (1 << 40),),
            "typestr": "|u1",
            "data": (x.data_ptr(), False),
            "version": 3,
            "stream": None,
        }


@row("Sparse tensors, torch → capsule → CuPy → capsule → torch", needs=BOTH, seconds=60)
def sparse():
    import cupy
    import torch

    shape, nnz = (64, 96), 500
    dense = torch.zeros(shape, device="cuda")
    dense.view(-1)[torch.randperm(dense.numel(), device="cuda")[:nnz]] = torch.rand(nnz).cuda() + 1
    coo, csr = dense.to_sparse_coo().coalesce(), dense.to_sparse_csr()
    expected = dense.cpu().numpy()
    stream = cupy.cuda.Stream(non_blocking=True)

    def tensor(values, *others, layout):
        return hurray.Tensor(values, hurray.float32, shape, aux_buffers=others, layout=layout)

    with hurray.copies() as log, stream:
        layout = hurray.CooLayout(nnz, True)
        sent = tensor(coo.values(), coo.indices().t().contiguous(), layout=layout)
        received = hurray.from_hurray(Offer(sent), stream=stream)
        places, values = received.indices.to_cupy(), received.values.to_cupy()
        array = cupy.zeros(shape, cupy.float32)
        array[places[:, 0].astype(cupy.int64), places[:, 1].astype(cupy.int64)] = values
        assert (array.get() == expected).all(), "COO"
        # And back: CuPy's own arrays, the consumer being torch.
        layout = hurray.CsrLayout(nnz)
        sent = tensor(csr.values(), csr.col_indices(), csr.crow_indices(), layout=layout)
        received = hurray.from_hurray(Offer(sent), stream=stream)
        parts = [received.values, received.col_indices, received.row_ptr]
        copied = [part.to_cupy().copy() for part in parts]
        sent = tensor(*copied, layout=layout)
    received = hurray.from_hurray(Offer(sent), stream=torch.cuda.current_stream())
    back = torch.sparse_csr_tensor(
        received.row_ptr.to_torch().view(torch.int64),
        received.col_indices.to_torch().view(torch.int64),
        received.values.to_torch(),
        shape,
    )
    assert (back.to_dense().cpu().numpy() == expected).all(), "CSR"
    assert not log, log
    return "COO to CuPy, CSR to CuPy and back, values equal, no copy of ours"


@row("A quantized tensor, torch → capsule → CuPy", needs=BOTH, seconds=60)
def quantized():
    import cupy
    import torch

    codes = torch.randint(-128, 128, (256, 512), dtype=torch.int8, device="cuda")
    scales = torch.rand(256, device="cuda") + 0.1
    sent = hurray.Tensor(
        codes,
        hurray.int8,
        codes.shape,
        aux_buffers=[scales],
        quantization=hurray.PerChannelAffine.symmetric(0, 1),
    )
    stream = cupy.cuda.Stream(non_blocking=True)
    with hurray.copies() as log, stream:
        received = hurray.from_hurray(Offer(sent), stream=stream)
        values = received.codes.to_cupy().astype(cupy.float32)
        factors = received.buffer(1, stream=stream).to_cupy().view(cupy.float32)
        result = values * factors[:, None]
    assert not log, log
    stream.synchronize()
    expected = (codes.float() * scales[:, None]).cpu().numpy()
    assert (result.get() == expected).all()
    try:
        cupy.from_dlpack(received)
    except BufferError as error:
        text = str(error)
    else:
        raise AssertionError("codes left as if they were values")
    return f"values equal, no copy; `cupy.from_dlpack` of the tensor itself is refused: {text}"
