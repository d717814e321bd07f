//! A composite crosses in one list: the head's descriptor and each member's, and the members' buffers, in stream order.
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every capsule here is made here, and consumed or destroyed once"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in tests a panic is the report"
)]

mod producer;
mod tensors;

use std::sync::Arc;

use hurray_core::memory::AlignedBytes;
use hurray_core::{
    CompositeHead, CompositionRule, ElementType, Layout, Shard, SyncMode, TensorDescriptor,
};
use hurray_ffi::abi::{HurrayBufferList, HurrayCapsuleContext};
use hurray_ffi::{
    Buffer, Composite, CompositeAssembler, ConsumeError, Item, Tensor, TensorError, consume,
};
use producer::{List, destroy};
use tensors::{cuda_row, host_row, host_tensor, plain};

fn head(rule: CompositionRule, shape: &[u64], member_count: u32) -> TensorDescriptor {
    TensorDescriptor {
        layout: Layout::Composite(CompositeHead { rule, member_count }),
        buffers: [].as_slice().into(),
        ..plain(ElementType::Float32, shape, host_row(0))
    }
}

/// Rows `at .. at + count` of a float32 `[8, 4]`.
fn shard(at: u64, count: u64) -> TensorDescriptor {
    TensorDescriptor {
        shard: Some(Shard {
            parent_shape: [8, 4].as_slice().into(),
            offset: [at, 0].as_slice().into(),
        }),
        ..plain(
            ElementType::Float32,
            &[count, 4],
            host_row(count as usize * 16),
        )
    }
}

fn tensor(descriptor: TensorDescriptor) -> Item {
    let buffer =
        Buffer::from(AlignedBytes::zeroed(descriptor.buffers[0].byte_size as usize).unwrap());
    Item::Tensor(Tensor::new(descriptor, [buffer].as_slice()).unwrap())
}

fn group(members: Vec<Item>) -> Composite {
    Composite::new(
        head(CompositionRule::Group, &[], members.len() as u32),
        members,
    )
    .unwrap()
}

fn partition() -> Composite {
    let members = [(0, 3), (3, 1), (4, 4)].map(|(at, count)| tensor(shard(at, count)));
    Composite::new(head(CompositionRule::Partition, &[8, 4], 3), members).unwrap()
}

fn consumed(composite: &Composite) -> Composite {
    let list = composite.export().unwrap();
    let context = list.context().as_ptr();
    match unsafe { consume(list.into_raw().as_ptr(), context) }.unwrap() {
        Item::Composite(composite) => composite,
        Item::Tensor(_) => panic!("a tensor"),
    }
}

/// Descriptors and addresses in stream order.
fn flat(composite: &Composite) -> (Vec<TensorDescriptor>, Vec<*mut u8>) {
    let mut all = (vec![TensorDescriptor::clone(composite.head())], Vec::new());
    for member in composite.members() {
        match member {
            Item::Tensor(tensor) => {
                all.0.push(TensorDescriptor::clone(tensor.descriptor()));
                all.1.extend(tensor.buffers().iter().map(Buffer::as_ptr));
            }
            Item::Composite(composite) => {
                let (descriptors, addresses) = flat(composite);
                all.0.extend(descriptors);
                all.1.extend(addresses);
            }
        }
    }
    all
}

#[test]
fn a_partition_comes_back_as_it_went() {
    let sent = partition();
    let got = consumed(&sent);
    assert_eq!(flat(&got), flat(&sent));
    assert_eq!(got.members().len(), 3);
}

#[test]
fn nested_groups_come_back_as_they_went() {
    let quantized = || Item::Tensor(host_tensor());
    let inner = group(vec![quantized(), Item::Composite(partition()), quantized()]);
    let empty = group(Vec::new());
    let sent = group(vec![
        Item::Composite(inner),
        Item::Composite(empty),
        quantized(),
        Item::Composite(group(vec![Item::Composite(partition())])),
    ]);
    let got = consumed(&sent);
    assert_eq!(flat(&got), flat(&sent));
    assert_eq!(got.members().len(), 4);
    let Item::Composite(inner) = &got.members()[0] else {
        panic!("a tensor")
    };
    assert_eq!(inner.members().len(), 3);
}

#[test]
fn a_composite_without_buffers_is_a_list_without_buffers() {
    let sent = group(Vec::new());
    assert!(sent.export().unwrap().is_empty());
    assert_eq!(flat(&consumed(&sent)), flat(&sent));
}

#[test]
fn members_that_do_not_fit_make_no_composite() {
    let members = [(0, 3), (4, 4)].map(|(at, count)| tensor(shard(at, count)));
    let error = Composite::new(
        head(CompositionRule::Partition, &[8, 4], 2),
        members.clone(),
    );
    let TensorError::Descriptor(error) = error.unwrap_err() else {
        panic!("another error")
    };
    assert_eq!(error.rule(), "A12");
    let spoiled = TensorDescriptor {
        byte_offset: 64,
        ..head(CompositionRule::Group, &[], 2)
    };
    assert!(Composite::new(spoiled, members.clone()).is_err());
    for count in [0, 1, 3] {
        assert!(Composite::new(head(CompositionRule::Group, &[], count), members.clone()).is_err());
    }
}

fn foreign(descriptors: &[TensorDescriptor]) -> Box<List> {
    List::new(&descriptors.iter().collect::<Vec<_>>())
}

fn consume_foreign(
    (list, context): (*mut HurrayBufferList, *const HurrayCapsuleContext),
) -> Result<Item, ConsumeError> {
    unsafe { consume(list, context) }.inspect_err(|_| destroy(list))
}

/// Members may lie on different devices, and their indices count from their own first buffer.
#[test]
fn a_foreign_composite_over_two_devices_is_taken_and_let_go_member_by_member() {
    let row = cuda_row(16, SyncMode::Event);
    let descriptors = [
        head(CompositionRule::Group, &[], 2),
        tensors::quantized(tensors::SIZES.map(host_row)),
        plain(ElementType::Float32, &[4], row),
    ];
    let list = foreign(&descriptors);
    let log = Arc::clone(&list.log);
    let Ok(Item::Composite(got)) = consume_foreign(list.into_capsule()) else {
        panic!("no composite")
    };
    assert_eq!(flat(&got).0, descriptors);
    let second = got.members()[1].clone();
    drop(got);
    assert_eq!(log.counts(), [1, 1, 1, 0]);
    drop(second);
    assert_eq!(log.counts(), [1, 1, 1, 1]);
    assert_eq!(log.event_counts(), [0, 0, 0, 1]);
    assert_eq!(log.destroyed(), 1);
}

#[test]
fn a_foreign_composite_that_is_torn_or_goes_on_is_refused() {
    let whole = [
        head(CompositionRule::Group, &[], 2),
        shard(0, 3),
        shard(3, 1),
    ];
    let error = consume_foreign(foreign(&whole[..2]).into_capsule()).unwrap_err();
    assert!(
        matches!(&error, ConsumeError::Descriptor(error) if error.rule() == "A9"),
        "{error}"
    );
    let more = [&whole[..], &[shard(4, 4)]].concat();
    let error = consume_foreign(foreign(&more).into_capsule()).unwrap_err();
    assert!(
        matches!(error, ConsumeError::TrailingBytes { .. }),
        "{error}"
    );
    let mut list = foreign(&whole);
    list.len = 1;
    let error = consume_foreign(list.into_capsule()).unwrap_err();
    let (found, expected) = (1, 2);
    assert_eq!(error, ConsumeError::ListLength { found, expected });
    assert!(consume_foreign(foreign(&whole).into_capsule()).is_ok());
}

#[test]
fn a_member_is_checked_against_its_own_buffers() {
    let whole = [
        head(CompositionRule::Group, &[], 2),
        shard(0, 3),
        shard(3, 1),
    ];
    let mut list = foreign(&whole);
    list.buffers[1].info.byte_size = 15;
    let error = consume_foreign(list.into_capsule()).unwrap_err();
    let (buffer, row, found) = (0, 16, 15);
    let source = Box::new(TensorError::TooSmall { buffer, row, found });
    assert_eq!(error, TensorError::Member { item: 2, source }.into());
}

#[test]
fn heads_nest_64_deep_and_no_deeper() {
    for (depth, accepted) in [(64, true), (65, false), (10_000, false)] {
        let mut descriptors = vec![head(CompositionRule::Group, &[], 1); depth];
        descriptors.push(plain(ElementType::Uint8, &[64], host_row(64)));
        let got = consume_foreign(foreign(&descriptors).into_capsule());
        assert_eq!(got.is_ok(), accepted, "{depth}");
    }
}

/// A `member_count` is a claim: nothing is allocated for it.
#[test]
fn a_head_that_claims_four_billion_members_costs_nothing() {
    let torn = [head(CompositionRule::Group, &[], u32::MAX - 1), shard(0, 3)];
    let error = consume_foreign(foreign(&torn).into_capsule()).unwrap_err();
    assert!(
        matches!(&error, ConsumeError::Descriptor(error) if error.rule() == "A9"),
        "{error}"
    );
}

/// Nanoseconds that this thread has run.
fn cpu_time() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    assert_eq!(
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) },
        0
    );
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// The time that `body` takes of what `prepare` gives.
fn time<T, R>(prepare: impl FnOnce() -> T, body: impl FnOnce(T) -> R) -> i64 {
    let given = prepare();
    let start = cpu_time();
    let result = body(given);
    let taken = cpu_time() - start;
    drop(result);
    taken
}

/// Ten times the members take about ten times the time, where work that grows with the square of them would take a hundred times.
#[test]
fn ten_times_the_members_cost_at_most_twelve_times_as_much() {
    let descriptors = |count: u64| {
        let parent = &[count, 4][..];
        let parts = (0..count).map(|at| TensorDescriptor {
            shard: Some(Shard {
                parent_shape: parent.into(),
                offset: [at, 0].as_slice().into(),
            }),
            ..shard(at, 1)
        });
        let whole = head(CompositionRule::Partition, parent, count as u32);
        std::iter::once(whole).chain(parts).collect::<Vec<_>>()
    };
    let few = descriptors(10_000);
    let many = descriptors(100_000);
    let made = |descriptors: &[TensorDescriptor]| {
        let parts: Vec<_> = descriptors[1..].iter().cloned().map(tensor).collect();
        Composite::new(descriptors[0].clone(), parts).unwrap()
    };

    let check = |what: &str, cost: &dyn Fn(&[TensorDescriptor]) -> i64| {
        // A machine that is busy with something else can spoil a turn.
        let in_line = (0..4).any(|_| cost(&many) <= 12 * cost(&few));
        assert!(in_line, "{what}");
    };
    check("another library's list", &|descriptors| {
        time(
            || foreign(descriptors).into_capsule(),
            |capsule| consume_foreign(capsule).unwrap(),
        )
    });
    check("a new composite", &|descriptors| {
        let parts: Arc<[Item]> = descriptors[1..].iter().cloned().map(tensor).collect();
        time(
            || (descriptors[0].clone(), Arc::clone(&parts)),
            |(head, parts)| Composite::new(head, parts).unwrap(),
        )
    });
    check("an export and its way back", &|descriptors| {
        let composite = made(descriptors);
        time(|| (), |()| consumed(&composite))
    });
}

/// The parts of a composite of a partition and a tensor, pushed one by one, make what [`Composite::new`] makes.
#[test]
fn an_assembler_makes_the_composite_of_its_parts() {
    let whole = group(vec![Item::Composite(partition()), tensor(shard(0, 8))]);
    let mut assembler = CompositeAssembler::new();
    push_all(&mut assembler, &whole);
    assert!(assembler.is_complete());
    assert_eq!(assembler.depth(), 0);
    let made = assembler.finish().unwrap();
    let ((mut expected, addresses), (descriptors, same_addresses)) = (flat(&whole), flat(&made));
    assert_eq!(addresses, same_addresses);
    // The rows of the parts said 64, and now say what the memory has.
    let (rows, measured) = (&mut expected, &descriptors);
    for (row, measured) in rows.iter_mut().zip(measured) {
        for (row, measured) in row.buffers.iter_mut().zip(&measured.buffers) {
            assert!(measured.alignment >= row.alignment);
            row.alignment = measured.alignment;
        }
    }
    assert_eq!(expected, descriptors);
}

fn push_all(assembler: &mut CompositeAssembler, composite: &Composite) {
    assembler.push(Arc::clone(composite.head())).unwrap();
    for member in composite.members() {
        match member {
            Item::Composite(composite) => push_all(assembler, composite),
            Item::Tensor(tensor) => {
                assembler.push(Arc::clone(tensor.descriptor())).unwrap();
                assert!(!assembler.is_complete());
                assembler.fill(tensor.buffers()).unwrap();
            }
        }
    }
}

#[test]
fn an_assembler_wants_each_tensors_buffers_before_the_next_descriptor() {
    let Item::Tensor(member) = tensor(shard(0, 8)) else {
        panic!("a tensor")
    };
    let started = || {
        let mut assembler = CompositeAssembler::new();
        assembler
            .push(head(CompositionRule::Group, &[], 2))
            .unwrap();
        assert_eq!(assembler.depth(), 1);
        assembler.push(Arc::clone(member.descriptor())).unwrap();
        assembler
    };
    let is_count = |result| matches!(result, Err(TensorError::BufferCount { .. }));
    assert!(is_count(started().push(Arc::clone(member.descriptor()))));
    assert!(is_count(started().fill([].as_slice())));
    assert!(is_count(started().finish().map(drop)));
    let mut assembler = started();
    assembler.fill(member.buffers()).unwrap();
    assert!(is_count(assembler.fill(member.buffers())));
    let short = member.buffers()[0].slice(0, 4).unwrap();
    let result = started().fill([short].as_slice());
    assert!(matches!(result, Err(TensorError::TooSmall { .. })));
    let torn = assembler.finish().map(drop).unwrap_err();
    assert!(matches!(torn, TensorError::Descriptor(error) if error.rule() == "A9"));
}
