//! Memory that is freed too early, twice or never, and handles that are left.

use hurray_cuda_programs::cuda::{self, LEGACY, Result};
use hurray_cuda_programs::device::LEN;

use crate::Defect;
use crate::scene::Scene;

pub(crate) const DEFECTS: &[Defect] = &[
    ("free_under_a_kernel", "use-after-free", free_under_a_kernel),
    (
        "free_under_a_reader_of_two",
        "use-after-free",
        free_under_a_reader_of_two,
    ),
    (
        "free_on_another_stream",
        "use-after-free",
        free_on_another_stream,
    ),
    (
        "use_after_a_free_of_its_stream",
        "use-after-free",
        use_after_a_free_of_its_stream,
    ),
    (
        "use_after_a_free_by_the_host",
        "use-after-free",
        use_after_a_free_by_the_host,
    ),
    (
        "free_after_a_synchronous_copy_between_devices",
        "use-after-free",
        free_after_a_synchronous_copy_between_devices,
    ),
    (
        "free_of_page_locked_memory_in_flight",
        "use-after-free",
        free_of_page_locked_memory_in_flight,
    ),
    (
        "unmap_under_a_kernel",
        "use-after-free",
        unmap_under_a_kernel,
    ),
    ("free_twice", "double-free", free_twice),
    (
        "free_twice_in_a_stream",
        "double-free",
        free_twice_in_a_stream,
    ),
    (
        "free_of_something_else",
        "unknown-address",
        free_of_something_else,
    ),
    ("memory_left_at_exit", "leak-memory", memory_left_at_exit),
    (
        "pool_memory_left_at_exit",
        "leak-memory",
        pool_memory_left_at_exit,
    ),
    (
        "page_locked_memory_left_at_exit",
        "leak-memory",
        page_locked_memory_left_at_exit,
    ),
    ("event_left_at_exit", "leak-handle", event_left_at_exit),
    ("stream_left_at_exit", "leak-handle", stream_left_at_exit),
];

fn free_under_a_kernel(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::add(scene.device.add, scene.a, scene.b, LEN, 1, scene.first)?;
    if !broken {
        cuda::synchronize_stream(scene.first)?;
    }
    cuda::free(scene.a)?;
    cuda::synchronize()?;
    cuda::free(scene.b)?;
    scene.leave()
}

fn free_under_a_reader_of_two(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc_async(LEN, scene.first)?;
    cuda::fill(c, 1, LEN, scene.first)?;
    scene.order(scene.first, scene.second)?;
    cuda::copy(scene.a, c, LEN, scene.first)?;
    cuda::copy(scene.b, c, LEN, scene.second)?;
    if !broken {
        scene.order(scene.second, scene.first)?;
    }
    cuda::free_async(c, scene.first)?;
    scene.close()
}

fn free_on_another_stream(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc_async(LEN, scene.first)?;
    scene.order(scene.first, scene.second)?;
    cuda::fill(c, 1, LEN, scene.first)?;
    if !broken {
        scene.order(scene.first, scene.second)?;
    }
    cuda::free_async(c, scene.second)?;
    scene.close()
}

fn use_after_a_free_of_its_stream(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc_async(LEN, scene.first)?;
    if broken {
        cuda::free_async(c, scene.first)?;
        cuda::fill(c, 1, LEN, scene.first)?;
    } else {
        cuda::fill(c, 1, LEN, scene.first)?;
        cuda::free_async(c, scene.first)?;
    }
    scene.close()
}

fn use_after_a_free_by_the_host(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc(LEN)?;
    cuda::fill(c, 1, LEN, scene.first)?;
    cuda::synchronize_stream(scene.first)?;
    if broken {
        cuda::free(c)?;
    }
    cuda::copy(scene.a, c, LEN, scene.first)?;
    cuda::synchronize_stream(scene.first)?;
    // What was freed is poison.
    let byte = if broken { 0xDB } else { 1 };
    assert_eq!(cuda::download_now(scene.a, LEN)?, [byte; LEN]);
    if !broken {
        cuda::free(c)?;
    }
    scene.close()
}

fn free_after_a_synchronous_copy_between_devices(broken: bool) -> Result {
    let scene = Scene::open()?;
    cuda::copy_now(scene.b, scene.a, LEN)?;
    if !broken {
        cuda::synchronize_stream(LEGACY)?;
    }
    cuda::free(scene.a)?;
    cuda::synchronize()?;
    cuda::free(scene.b)?;
    scene.leave()
}

fn free_of_page_locked_memory_in_flight(broken: bool) -> Result {
    let scene = Scene::open()?;
    let host = cuda::alloc_host(LEN)?;
    cuda::upload(scene.a, host, LEN, scene.first)?;
    if !broken {
        cuda::synchronize_stream(scene.first)?;
    }
    cuda::free_host(host)?;
    scene.close()
}

fn unmap_under_a_kernel(broken: bool) -> Result {
    let scene = Scene::open()?;
    let piece = cuda::granularity(0)?;
    let (start, handle) = (cuda::reserve(piece)?, cuda::physical(0, piece)?);
    cuda::map(start, piece, handle)?;
    cuda::allow(start, piece, 0)?;
    cuda::add(scene.device.add, start, scene.a, LEN, 1, scene.first)?;
    if !broken {
        cuda::synchronize_stream(scene.first)?;
    }
    cuda::unmap(start, piece)?;
    cuda::release_physical(handle)?;
    cuda::free_addresses(start, piece)?;
    scene.close()
}

fn free_twice(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc(LEN)?;
    cuda::free(c)?;
    if broken {
        assert!(cuda::free(c).is_err());
    }
    scene.close()
}

fn free_twice_in_a_stream(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc_async(LEN, scene.first)?;
    cuda::free_async(c, scene.first)?;
    if broken {
        assert!(cuda::free_async(c, scene.first).is_err());
    }
    scene.close()
}

fn free_of_something_else(broken: bool) -> Result {
    let scene = Scene::open()?;
    let c = cuda::alloc(LEN)?;
    if broken {
        assert!(cuda::free(c + 256).is_err());
    }
    cuda::free(c)?;
    scene.close()
}

fn memory_left_at_exit(broken: bool) -> Result {
    cuda::init()?;
    let context = cuda::retain_primary(0)?;
    cuda::set_current(context)?;
    let memory = cuda::alloc(LEN)?;
    if broken { Ok(()) } else { cuda::free(memory) }
}

fn pool_memory_left_at_exit(broken: bool) -> Result {
    let scene = Scene::open()?;
    let memory = cuda::alloc_async(LEN, scene.first)?;
    if !broken {
        // Never waited for: a free that is queued is no leak.
        cuda::free_async(memory, scene.first)?;
    }
    cuda::free(scene.a)?;
    cuda::free(scene.b)?;
    cuda::destroy_event(scene.event)?;
    cuda::destroy_event(scene.other)?;
    cuda::destroy_stream(scene.first)?;
    cuda::destroy_stream(scene.second)
}

fn page_locked_memory_left_at_exit(broken: bool) -> Result {
    let scene = Scene::open()?;
    let host = cuda::alloc_host(LEN)?;
    if !broken {
        cuda::free_host(host)?;
    }
    scene.close()
}

fn event_left_at_exit(broken: bool) -> Result {
    cuda::init()?;
    let context = cuda::retain_primary(0)?;
    cuda::set_current(context)?;
    let event = cuda::event()?;
    if broken {
        Ok(())
    } else {
        cuda::destroy_event(event)
    }
}

fn stream_left_at_exit(broken: bool) -> Result {
    cuda::init()?;
    let context = cuda::retain_primary(0)?;
    cuda::set_current(context)?;
    let stream = cuda::stream(0)?;
    if broken {
        Ok(())
    } else {
        cuda::destroy_stream(stream)
    }
}
