//! Ordering between two streams.

use std::thread;

use hurray_core::{Dependency, DeviceLayer, DeviceOwner, Stream};
use hurray_cuda::LAYER;

use crate::Case;
use crate::count::Calls;
use crate::memory::{stream, synchronize};

/// Buffers of a tensor.
const BUFFERS: usize = 4;

pub(crate) fn cases() -> Vec<Case> {
    let (producer, consumer) = (stream(), stream());
    let on = |stream: &Stream| Dependency::Stream(stream.clone());
    let event = Dependency::Event(LAYER.record(producer).expect("recorded"));
    let none = Calls::default();
    let wait = Calls { waits: 1, ..none };
    let record_and_wait = Calls {
        records: 1,
        waits: 1,
        ..none
    };
    let owners: Vec<_> = (0..BUFFERS)
        .map(|_| LAYER.own(Box::new(())).expect("a device"))
        .collect();
    vec![
        case("ready", Vec::new(), consumer, none),
        case("equal streams", vec![on(consumer); BUFFERS], consumer, none),
        case("one event", vec![event; BUFFERS], consumer, wait),
        case(
            "one stream",
            vec![on(producer); BUFFERS],
            consumer,
            record_and_wait,
        ),
        Case {
            name: "order, hand out and come back",
            bytes: None,
            run: Box::new(move || {
                let dependency = Dependency::Stream(producer.clone());
                LAYER
                    .order(&[&dependency; BUFFERS], consumer)
                    .expect("ordered");
                let owners: Vec<&dyn DeviceOwner> = owners.iter().map(|owner| &**owner).collect();
                LAYER.enter(&owners, consumer).expect("entered");
                LAYER.leave(&owners, consumer, thread::current().id());
            }),
            finish: Box::new(|| synchronize(consumer)),
            limit: Some(Calls {
                records: 2,
                waits: 1,
                ..none
            }),
        },
    ]
}

fn case(
    name: &'static str,
    dependencies: Vec<Dependency>,
    consumer: &'static Stream,
    limit: Calls,
) -> Case {
    Case {
        name,
        bytes: None,
        run: Box::new(move || {
            let dependencies: Vec<&Dependency> = dependencies.iter().collect();
            LAYER.order(&dependencies, consumer).expect("ordered");
        }),
        finish: Box::new(|| synchronize(consumer)),
        limit: Some(limit),
    }
}
