//! Three stages on three streams, and what goes through them.

use std::sync::mpsc;
use std::thread;

use hurray_core::{Dependency, Stream};
use hurray_cuda::CudaStream;
use hurray_cuda_programs::cuda;
use libtest_mimic::{Failed, Trial};

use crate::harness::{
    Done, Scenario, assert_clean, assert_handled, calls, child, clean, clean_on, sweep,
};
use crate::scene::{
    Buffer, SMALL, call, consume, filled, finish, foreign, give_back, hand_out, handle, host_waits,
    live, make_current, peak_bytes, stream,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("a_pipeline_of_20_tensors", || pipeline(20).map(|_| ())),
    ("a_pipeline_of_8_tensors", || pipeline(8).map(|_| ())),
    ("a_pipeline_of_10000_tensors", a_pipeline_of_10000_tensors),
    (
        "a_pipeline_of_foreign_tensors",
        a_pipeline_of_foreign_tensors,
    ),
    ("four_threads_trade_buffers", four_threads_trade_buffers),
];

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        clean("a_pipeline_of_20_tensors"),
        sweep("a_pipeline_of_20_tensors", &[]),
        clean("a_pipeline_of_10000_tensors"),
        clean_on("a_pipeline_of_20_tensors", |run| run.pools(false)),
        clean("a_pipeline_of_foreign_tensors"),
        // The record when the writer is done: that the reader has waited for it is not noted.
        sweep(
            "a_pipeline_of_foreign_tensors",
            &[
                ("cuEventRecord", 1),
                ("cuEventRecord", 4),
                ("cuEventRecord", 7),
                ("cuEventRecord", 10),
            ],
        ),
        Trial::test("every_driver_error_in_a_pipeline_is_an_error_value", || {
            every_driver_error("a_pipeline_of_8_tensors")
        }),
        Trial::test(
            "every_driver_error_before_a_foreign_release_is_an_error_value",
            || every_driver_error("a_pipeline_of_foreign_tensors"),
        ),
        clean("four_threads_trade_buffers"),
    ]
}

/// The first stage fills a tensor's buffers on its stream. The second and the third each read what they are handed, on theirs, into a tensor of their
/// own, give back what they read, finish what they made, and hand it on. The third's tensors are dropped.
fn pipeline(tensors: usize) -> Result<Counts, Box<dyn std::error::Error>> {
    make_current(0)?;
    let stages = [stream()?, stream()?, stream()?];
    let [first, second, third] = stages.each_ref().map(CudaStream::stream);
    let mut before = None;
    for number in 0..tensors {
        let buffers = 1 + number % 4;
        let produced = (0..buffers)
            .map(|_| filled(SMALL, (number % 255) as u8, first))
            .collect::<Result<Vec<_>, _>>()?;
        before.get_or_insert_with(Counts::now);
        let read = stage(produced, second)?;
        drop(stage(read, third)?);
    }
    let after = Counts::now();
    drop(stages);
    finish()?;
    Ok(before.map_or(after, |before| after.since(before)))
}

/// Reads a tensor on a stream into a new one.
fn stage(tensor: Vec<Buffer>, stream: &Stream) -> Result<Vec<Buffer>, Box<dyn std::error::Error>> {
    let buffers: Vec<&Buffer> = tensor.iter().collect();
    hand_out(&buffers, stream)?;
    let made: Result<Vec<_>, _> = tensor
        .iter()
        .map(|buffer| consume(buffer, stream))
        .collect();
    give_back(&buffers, stream);
    drop(tensor);
    let made = made?;
    for buffer in &made {
        call(cuda::fill(
            buffer.address as u64,
            1,
            buffer.len / 2,
            handle(stream),
        ))?;
    }
    Ok(made)
}

/// What the program's threads have called.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts {
    host_waits: u64,
    events_created: u64,
    streams_created: u64,
    orders: u64,
}

impl Counts {
    fn now() -> Self {
        Self {
            host_waits: host_waits(),
            events_created: crate::scene::calls(c"cuEventCreate"),
            streams_created: crate::scene::calls(c"cuStreamCreate"),
            orders: crate::scene::calls(c"cuStreamWaitEvent"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            host_waits: self.host_waits - before.host_waits,
            events_created: self.events_created - before.events_created,
            streams_created: self.streams_created - before.streams_created,
            orders: self.orders - before.orders,
        }
    }
}

/// No host synchronisation between the first and the last handoff, no race, no leak, bounded memory.
fn a_pipeline_of_10000_tensors() -> Done {
    let counts = pipeline(10_000)?;
    assert_eq!(counts.host_waits, 0);
    // One to order and one for what came back, per stage at most.
    assert!(counts.events_created <= 8, "{counts:?}");
    // One lane per set of readers.
    assert!(counts.streams_created <= 2, "{counts:?}");
    // Per tensor that is read one wait of its reader, and one of the lane that frees it.
    assert_eq!(counts.orders, 10_000 * 2 * 2);
    // Of 300 MB that are allocated in all.
    assert!(peak_bytes() <= 4 << 20, "{}", peak_bytes());
    assert_eq!(
        (live(c"memory"), live(c"event"), live(c"stream")),
        (0, 0, 0)
    );
    Ok(())
}

/// Every call position: the run ends in success or an error value, nothing hung, nothing handed out or freed early.
fn every_driver_error(name: &'static str) -> Result<(), Failed> {
    const UNKNOWN: u32 = 999;
    let sound = child(name).logged().run();
    assert_clean(&sound);
    let total = sound.log.len() as u64;
    assert!(total > 100, "{total}");
    let half = |odd: u64| {
        for n in (1..=total).filter(|n| n % 2 == odd) {
            let outcome = child(name).fail("*", n, UNKNOWN).run();
            assert_handled(&outcome, &format!("call {n} of {total}"));
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        half(0);
        other.join().map_err(|_| Failed::from("see above"))
    })?;
    // Exhaustion too, where something is allocated.
    for function in [
        "cuMemAllocFromPoolAsync",
        "cuEventCreate",
        "cuStreamCreate",
        "cuMemPoolCreate",
    ] {
        for n in 1..=calls(&sound, function) {
            let outcome = child(name).fail(function, n, 2).run();
            assert_handled(&outcome, &format!("{function} {n}"));
        }
    }
    Ok(())
}

/// Memory that is another library's: a writer, a reader, then the reclaimer.
fn a_pipeline_of_foreign_tensors() -> Done {
    make_current(0)?;
    let (writer, reader) = (stream()?, stream()?);
    for _ in 0..4 {
        let (mut outside, _) = foreign(SMALL)?;
        outside.enter(writer.stream())?;
        call(cuda::fill(
            outside.address as u64,
            1,
            SMALL,
            handle(writer.stream()),
        ))?;
        outside.leave(writer.stream());
        outside.dependency = Some(Dependency::Stream(writer.stream().clone()));
        drop(stage(vec![outside], reader.stream())?);
    }
    drop((writer, reader));
    finish()
}

/// While the reclaimer runs.
fn four_threads_trade_buffers() -> Done {
    const THREADS: usize = 4;
    const ROUNDS: usize = 100;
    make_current(0)?;
    let channels: Vec<_> = (0..THREADS)
        .map(|_| mpsc::channel::<Vec<Buffer>>())
        .collect();
    let (senders, receivers): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
    let ended: Vec<Result<(), String>> = thread::scope(|scope| {
        let threads: Vec<_> = receivers
            .into_iter()
            .enumerate()
            .map(|(own, receiver)| {
                let next = senders[(own + 1) % THREADS].clone();
                scope.spawn(move || {
                    trade(own, ROUNDS, &receiver, &next).map_err(|error| error.to_string())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("joined"))
            .collect()
    });
    for end in ended {
        end?;
    }
    finish()
}

/// Makes a tensor, sends it on, and reads the one that comes: its own pool memory, and a foreign owner's, which the reclaimer frees.
fn trade(
    own: usize,
    rounds: usize,
    receiver: &mpsc::Receiver<Vec<Buffer>>,
    next: &mpsc::Sender<Vec<Buffer>>,
) -> Done {
    make_current(0)?;
    let stream = stream()?;
    for round in 0..rounds {
        let mut tensor = vec![filled(SMALL, own as u8, stream.stream())?];
        if round % 8 == 0 {
            let (mut outside, _) = foreign(SMALL)?;
            outside.enter(stream.stream())?;
            call(cuda::fill(
                outside.address as u64,
                1,
                SMALL,
                handle(stream.stream()),
            ))?;
            outside.leave(stream.stream());
            outside.dependency = tensor[0].dependency.clone();
            tensor.push(outside);
        }
        next.send(tensor)?;
        drop(stage(receiver.recv()?, stream.stream())?);
    }
    Ok(())
}
