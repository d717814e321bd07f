//! A0–A12, C10, C11: members against their head, in time that follows the members.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    reason = "in tests a panic is the report"
)]

use std::time::{Duration, Instant};

use hurray_core::composite::{Assembler, MAX_DEPTH, assemble};
use hurray_core::{
    BufferHandle, CombineOp, CompositeError, CompositeHead, CompositionRule, DYNAMIC, DeviceTag,
    ElementType, ExtensionType, Layout, MemberRole, MemoryClass, PrivateTag, QuantizationScheme,
    Shard, SyncMode, TensorAffine, TensorDescriptor,
};
use proptest::prelude::*;

const PARTITION: CompositionRule = CompositionRule::Partition;
const OVERLAY: CompositionRule = CompositionRule::Overlay(CombineOp::Replace);
const GROUP: CompositionRule = CompositionRule::Group;

fn head(rule: CompositionRule, shape: &[u64], member_count: u32) -> TensorDescriptor {
    TensorDescriptor::new(
        ElementType::Int8,
        shape,
        Layout::Composite(CompositeHead { rule, member_count }),
        [],
    )
}

fn place(mut descriptor: TensorDescriptor, parent: &[u64], offset: &[u64]) -> TensorDescriptor {
    descriptor.shard = Some(Shard {
        parent_shape: parent.into(),
        offset: offset.into(),
    });
    descriptor
}

/// A tensor of one buffer.
fn tensor(shape: &[u64]) -> TensorDescriptor {
    let row = BufferHandle {
        byte_size: 64,
        alignment: 64,
        device: DeviceTag::Cpu,
        sync_mode: SyncMode::ProducerSynced,
        memory_class: MemoryClass::Standard,
    };
    TensorDescriptor {
        layout: Layout::RowMajor,
        buffers: [row].into_iter().collect(),
        ..head(GROUP, shape, 0)
    }
}

fn part(parent: &[u64], offset: &[u64], shape: &[u64]) -> TensorDescriptor {
    place(tensor(shape), parent, offset)
}

fn layer(role: MemberRole, parent: &[u64], offset: &[u64], shape: &[u64]) -> TensorDescriptor {
    TensorDescriptor {
        member: Some(role),
        ..part(parent, offset, shape)
    }
}

fn rule<'a>(descriptors: impl IntoIterator<Item = &'a TensorDescriptor>) -> &'static str {
    assemble(descriptors).map_or_else(|error| error.rule(), |_| "accepted")
}

/// The rule for the parts of a partition of `shape`.
fn judge(shape: &[u64], parts: Vec<TensorDescriptor>) -> &'static str {
    let head = head(PARTITION, shape, parts.len() as u32);
    rule([&head].into_iter().chain(&parts))
}

#[test]
fn a_composite_says_what_belongs_to_what() {
    let two_buffers = {
        let mut tensor = part(&[4, 4], &[0, 0], &[2, 4]);
        tensor.buffers.push(tensor.buffers[0]);
        tensor
    };
    let descriptors = [
        head(GROUP, &[], 3),
        tensor(&[3]),
        head(PARTITION, &[4, 4], 2),
        two_buffers,
        place(head(PARTITION, &[2, 4], 2), &[4, 4], &[2, 0]),
        part(&[2, 4], &[0, 0], &[1, 4]),
        part(&[2, 4], &[1, 0], &[1, 4]),
        tensor(&[]),
    ];
    let composite = assemble(&descriptors).unwrap();
    let members = |head| composite.members(head).collect::<Vec<_>>();
    assert_eq!(members(0), [1, 2, 7]);
    assert_eq!(members(2), [3, 4]);
    assert_eq!(members(4), [5, 6]);
    assert_eq!(members(1), []);
    assert_eq!(members(99), []);
    let buffers: Vec<_> = composite
        .items()
        .iter()
        .map(|i| i.buffers.clone())
        .collect();
    assert_eq!(buffers, [0..6, 0..1, 1..5, 1..3, 3..5, 3..4, 4..5, 5..6]);
    assert_eq!(composite.buffer_count(), 6);
    let heads: Vec<_> = composite.items().iter().map(|item| item.head).collect();
    assert_eq!(
        heads,
        [
            None,
            Some(0),
            Some(0),
            Some(2),
            Some(2),
            Some(4),
            Some(4),
            Some(0)
        ]
    );
    let depths: Vec<_> = composite.items().iter().map(|item| item.depth).collect();
    assert_eq!(depths, [0, 1, 1, 2, 2, 3, 3, 1]);
    assert_eq!(composite.items()[4].items, 4..7);
}

#[test]
fn a0_the_first_item_is_a_head() {
    assert_eq!(rule([&tensor(&[1])]), "A0");
    assert_eq!(rule([]), "A0");
}

#[test]
fn a1_members_of_partitions_and_overlays_have_a_shard_section() {
    assert_eq!(judge(&[2], vec![tensor(&[2])]), "A1");
    let base = TensorDescriptor {
        member: Some(MemberRole::Base),
        ..tensor(&[2])
    };
    assert_eq!(rule([&head(OVERLAY, &[2], 1), &base]), "A1");
    // In a group the section means nothing.
    assert_eq!(rule([&head(GROUP, &[2], 1), &tensor(&[3])]), "accepted");
    let elsewhere = part(&[9], &[7], &[1]);
    assert_eq!(rule([&head(GROUP, &[2], 1), &elsewhere]), "accepted");
}

#[test]
fn a2_the_parent_is_the_head() {
    assert_eq!(judge(&[2], vec![part(&[3], &[0], &[2])]), "A2");
    assert_eq!(judge(&[2], vec![part(&[2, 1], &[0, 0], &[2, 1])]), "A2");
}

#[test]
fn a3_members_lie_inside_the_head() {
    assert_eq!(judge(&[2], vec![part(&[2], &[1], &[2])]), "A3");
    let wraps = part(&[2], &[u64::MAX - 1], &[4]);
    assert_eq!(judge(&[2], vec![wraps]), "A3");
    assert_eq!(judge(&[2], vec![part(&[2], &[0], &[2, 1])]), "A3");
}

#[test]
fn a4_members_have_the_heads_type_unless_they_are_quantized() {
    let float = TensorDescriptor {
        element_type: ElementType::Float32,
        ..part(&[2], &[0], &[2])
    };
    assert_eq!(judge(&[2], vec![float]), "A4");
    let quantized = TensorDescriptor {
        element_type: ElementType::Int4,
        quantization: Some(
            QuantizationScheme::TensorAffine(TensorAffine {
                scale: 1.0,
                zero_point: 0,
            })
            .encode(),
        ),
        ..part(&[2], &[0], &[2])
    };
    assert_eq!(judge(&[2], vec![quantized]), "accepted");
    let private = |bit_width, descriptor: TensorDescriptor| TensorDescriptor {
        element_type: ElementType::Private(PrivateTag::new(0xF0).unwrap()),
        extension_type: Some(ExtensionType {
            bit_width,
            ..ExtensionType::default()
        }),
        ..descriptor
    };
    let head = private(8, head(PARTITION, &[2], 1));
    let member = part(&[2], &[0], &[2]);
    assert_eq!(rule([&head, &private(8, member.clone())]), "accepted");
    assert_eq!(rule([&head, &private(16, member)]), "A4");
}

#[test]
fn a5_members_of_overlays_and_only_they_have_a_member_section() {
    let base = layer(MemberRole::Base, &[2], &[0], &[2]);
    assert_eq!(judge(&[2], vec![base.clone()]), "A5");
    assert_eq!(rule([&head(GROUP, &[2], 1), &base]), "A5");
    assert_eq!(rule([&head(OVERLAY, &[2], 1), &base]), "accepted");
    let none = part(&[2], &[0], &[2]);
    assert_eq!(rule([&head(OVERLAY, &[2], 1), &none]), "A5");
    let nested = place(head(GROUP, &[2], 0), &[2], &[0]);
    let error = assemble([&head(OVERLAY, &[2], 1), &nested]).unwrap_err();
    assert_eq!(error, CompositeError::HeadInOverlay { item: 1 });
    assert!(
        error
            .to_string()
            .contains("cannot be the member of an overlay")
    );
}

#[test]
fn a6_an_overlay_has_one_base_and_it_is_first() {
    let base = layer(MemberRole::Base, &[2], &[0], &[2]);
    let correction = layer(MemberRole::Correction, &[2], &[1], &[1]);
    let overlay = |members: &[&TensorDescriptor]| {
        let head = head(OVERLAY, &[2], members.len() as u32);
        rule([&head].into_iter().chain(members.iter().copied()))
    };
    assert_eq!(overlay(&[&base, &correction, &correction]), "accepted");
    assert_eq!(overlay(&[&correction, &base]), "A6");
    assert_eq!(overlay(&[&base, &base]), "A6");
    assert_eq!(overlay(&[&base, &correction, &base]), "A6");
}

#[test]
fn a7_the_base_spans_the_head() {
    let base = layer(MemberRole::Base, &[2], &[0], &[1]);
    assert_eq!(rule([&head(OVERLAY, &[2], 1), &base]), "A7");
    let base = layer(MemberRole::Base, &[2], &[1], &[1]);
    assert_eq!(rule([&head(OVERLAY, &[2], 1), &base]), "A7");
}

#[test]
fn a8_nothing_follows_the_last_member() {
    let head = head(GROUP, &[], 1);
    assert_eq!(rule([&head, &tensor(&[1])]), "accepted");
    assert_eq!(rule([&head, &tensor(&[1]), &tensor(&[1])]), "A8");
    assert_eq!(rule([&self::head(GROUP, &[], 0), &tensor(&[1])]), "A8");
}

#[test]
fn a9_every_member_comes() {
    let error = assemble([&head(GROUP, &[], 3), &tensor(&[1])]).unwrap_err();
    let expected = CompositeError::Torn {
        head: 0,
        declared: 3,
        found: 1,
    };
    assert_eq!(error, expected);
    // Nothing is reserved for what a head declares.
    assert_eq!(rule([&head(GROUP, &[], u32::MAX - 1)]), "A9");
    let nested = [head(GROUP, &[], 1), head(GROUP, &[], 2), tensor(&[1])];
    assert_eq!(rule(&nested), "A9");
    let mut assembler = Assembler::new();
    assert!(!assembler.is_complete());
    for descriptor in &nested {
        assembler.push(descriptor).unwrap();
        assert!(!assembler.is_complete());
    }
    assembler.push(&tensor(&[1])).unwrap();
    assert!(assembler.is_complete());
}

#[test]
fn a10_heads_nest_64_levels_deep() {
    let nested = |levels: usize| {
        let mut heads = vec![head(GROUP, &[], 1); levels];
        heads.push(tensor(&[1]));
        rule(&heads)
    };
    assert_eq!(MAX_DEPTH, 64);
    assert_eq!(nested(64), "accepted");
    assert_eq!(nested(65), "A10");
    // Heads beside each other do not count.
    let mut flat = vec![head(GROUP, &[], 100)];
    flat.resize(101, head(GROUP, &[], 0));
    assert_eq!(rule(&flat), "accepted");
}

#[test]
fn a11_boxes_do_not_overlap() {
    let parts = vec![
        part(&[4, 4], &[0, 0], &[4, 2]),
        part(&[4, 4], &[0, 1], &[4, 3]),
    ];
    let head = head(PARTITION, &[4, 4], 2);
    let error = assemble([&head].into_iter().chain(&parts)).unwrap_err();
    let CompositeError::Overlap {
        head: 0,
        first: 1,
        second: 2,
        index,
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(index[1], 1, "{error}");
    // Scalars always overlap.
    assert_eq!(judge(&[], vec![part(&[], &[], &[])]), "accepted");
    assert_eq!(judge(&[], vec![part(&[], &[], &[]); 2]), "A11");
}

#[test]
fn a12_boxes_leave_no_gap() {
    let error = assemble([
        &head(PARTITION, &[4, 4], 1),
        &part(&[4, 4], &[0, 0], &[4, 3]),
    ])
    .unwrap_err();
    let expected = CompositeError::Gap {
        head: 0,
        index: [0, 3].into(),
    };
    assert_eq!(error, expected);
    assert_eq!(judge(&[4], vec![]), "A12");
    assert_eq!(judge(&[], vec![]), "A12");
    assert_eq!(judge(&[4, 0], vec![]), "accepted");
    // More elements than 64 bits count, where the release skips the test.
    let huge = [1 << 40, 1 << 40];
    assert_eq!(
        judge(&huge, vec![part(&huge, &[0, 0], &[1 << 40, 1])]),
        "A12"
    );
    assert_eq!(judge(&huge, vec![part(&huge, &[0, 0], &huge)]), "accepted");
}

#[test]
fn a12_as_many_elements_as_the_head_has_do_not_make_a_partition() {
    let twice = vec![part(&[4], &[0], &[2]), part(&[4], &[0], &[2])];
    assert!(["A11", "A12"].contains(&judge(&[4], twice)));
}

#[test]
fn empty_boxes_cover_nothing_wherever_they_are() {
    for offset in [0, 1, 4] {
        let parts = vec![part(&[4], &[0], &[4]), part(&[4], &[offset], &[0])];
        assert_eq!(judge(&[4], parts), "accepted");
        let parts = vec![part(&[4], &[0], &[3]), part(&[4], &[offset], &[0])];
        assert_eq!(judge(&[4], parts), "A12");
    }
}

#[test]
fn c10_partitions_and_overlays_are_of_known_shape() {
    assert_eq!(rule([&head(PARTITION, &[1, DYNAMIC], 0)]), "C10");
    assert_eq!(rule([&head(OVERLAY, &[DYNAMIC], 1)]), "C10");
    assert_eq!(rule([&head(GROUP, &[DYNAMIC], 0)]), "accepted");
}

#[test]
fn c11_an_overlay_has_members() {
    assert_eq!(rule([&head(OVERLAY, &[1], 0)]), "C11");
}

/// Boxes with up to 4 bounds per side inside a shape of up to 3 dimensions, as (offset, size) lists.
fn boxes() -> impl Strategy<Value = (Vec<u64>, Vec<Vec<(u64, u64)>>)> {
    proptest::collection::vec(0..5_u64, 0..=3).prop_flat_map(|shape| {
        let sides: Vec<_> = shape
            .iter()
            .map(|&size| (0..=size).prop_flat_map(move |at| (Just(at), 0..=size - at)))
            .collect();
        (Just(shape), proptest::collection::vec(sides, 0..5))
    })
}

/// A tiling, cut again and again at random, with at most one box then moved, resized, doubled or dropped.
fn tiling() -> impl Strategy<Value = (Vec<u64>, Vec<Vec<(u64, u64)>>)> {
    let shape = proptest::collection::vec(1..7_u64, 1..=4);
    let cuts =
        proptest::collection::vec((any::<prop::sample::Index>(), 0..4_usize, 1..6_u64), 0..12);
    (shape, cuts, 0..4_u8).prop_map(|(shape, cuts, fault)| {
        let mut boxes: Vec<Vec<(u64, u64)>> = vec![shape.iter().map(|&size| (0, size)).collect()];
        for (pick, dimension, at) in cuts {
            let chosen = pick.index(boxes.len());
            let dimension = dimension % shape.len();
            let (start, size) = boxes[chosen][dimension];
            if at < size {
                let mut rest = boxes[chosen].clone();
                boxes[chosen][dimension] = (start, at);
                rest[dimension] = (start + at, size - at);
                boxes.push(rest);
            }
        }
        match fault {
            0 => {}
            1 => drop(boxes.pop()),
            2 => boxes.push(boxes[0].clone()),
            _ => boxes[0][0].1 -= 1,
        }
        (shape, boxes)
    })
}

fn descriptors(shape: &[u64], boxes: &[Vec<(u64, u64)>]) -> Vec<TensorDescriptor> {
    let mut all = vec![head(PARTITION, shape, boxes.len() as u32)];
    all.extend(boxes.iter().map(|sides| {
        let (offset, size): (Vec<_>, Vec<_>) = sides.iter().copied().unzip();
        part(shape, &offset, &size)
    }));
    all
}

/// How many boxes cover each element, by counting.
fn covers(shape: &[u64], boxes: &[Vec<(u64, u64)>], index: &[u64]) -> usize {
    assert_eq!(shape.len(), index.len());
    boxes
        .iter()
        .filter(|sides| {
            sides
                .iter()
                .zip(index)
                .all(|(&(at, size), i)| (at..at + size).contains(i))
        })
        .count()
}

fn every_index(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![vec![]], |indices, &size| {
        indices
            .iter()
            .flat_map(|index| (0..size).map(move |i| [&index[..], &[i]].concat()))
            .collect()
    })
}

fn agrees_with_counting(shape: &[u64], boxes: &[Vec<(u64, u64)>]) -> Result<(), TestCaseError> {
    let tiles = every_index(shape)
        .iter()
        .all(|index| covers(shape, boxes, index) == 1);
    match assemble(&descriptors(shape, boxes)) {
        Ok(_) => prop_assert!(tiles),
        Err(CompositeError::Overlap {
            first,
            second,
            index,
            ..
        }) => {
            prop_assert!(covers(shape, &boxes[first - 1..first], &index) == 1);
            prop_assert!(covers(shape, &boxes[second - 1..second], &index) == 1);
            prop_assert!(first < second);
        }
        Err(CompositeError::Gap { index, .. }) => {
            prop_assert_eq!(covers(shape, boxes, &index), 0);
            prop_assert!(index.iter().zip(shape).all(|(i, size)| i < size));
        }
        Err(other) => return Err(TestCaseError::fail(other.to_string())),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_boxes_are_judged_as_counting_does((shape, boxes) in boxes()) {
        agrees_with_counting(&shape, &boxes)?;
    }

    #[test]
    fn tilings_are_judged_as_counting_does((shape, boxes) in tiling()) {
        agrees_with_counting(&shape, &boxes)?;
    }
}

/// The least of several timings of `copies` assemblies, all kept: the memory of ten small composites is that of one large one.
fn time(descriptors: &[&TensorDescriptor], copies: usize, expected: &str) -> Duration {
    (0..2)
        .map(|_| {
            let mut results = Vec::with_capacity(copies);
            let start = Instant::now();
            for _ in 0..copies {
                results.push(assemble(descriptors.iter().copied()));
            }
            let took = start.elapsed();
            for result in results {
                let rule = result.map_or_else(|error| error.rule(), |_| "accepted");
                assert_eq!(rule, expected);
            }
            took
        })
        .min()
        .unwrap()
}

/// The same composite with ten times the members costs at most twelve times as much: at most 1.2 times as much as ten of the small ones.
fn grows_with_its_members(
    name: &str,
    small: &[&TensorDescriptor],
    large: &[&TensorDescriptor],
    expected: &str,
) {
    assert!(large.len() >= 9 * small.len());
    // A busy machine may disturb one measurement, not every one.
    let mut ratios = Vec::new();
    for _ in 0..8 {
        let ten = time(small, 10, expected);
        let one = time(large, 1, expected);
        ratios.push(one.as_secs_f64() / ten.as_secs_f64());
        if ratios.last().is_some_and(|&ratio| ratio <= 1.2) {
            return;
        }
    }
    panic!("{name}: {ratios:.2?}");
}

/// A square head of rows × rows members of one element.
fn grid(rows: u64) -> Vec<TensorDescriptor> {
    let shape = [rows, rows];
    let boxes: Vec<_> = every_index(&shape)
        .into_iter()
        .map(|index| index.into_iter().map(|at| (at, 1)).collect())
        .collect();
    descriptors(&shape, &boxes)
}

/// `count` nested rings of four boxes each, so that every cut crosses many.
fn rings(count: u64) -> Vec<TensorDescriptor> {
    let side = 2 * count;
    let boxes: Vec<Vec<(u64, u64)>> = (0..count)
        .flat_map(|ring| {
            let (low, high, length) = (ring, side - 1 - ring, side - 1 - 2 * ring);
            [
                vec![(low, 1), (low, length)],
                vec![(low, length), (high, 1)],
                vec![(high, 1), (low + 1, length)],
                vec![(low + 1, length), (low, 1)],
            ]
        })
        .collect();
    descriptors(&[side, side], &boxes)
}

/// Rows of a head of one column.
fn rows(count: u64) -> Vec<TensorDescriptor> {
    let boxes: Vec<_> = (0..count).map(|row| vec![(row, 1), (0, 1)]).collect();
    descriptors(&[count, 1], &boxes)
}

fn all(members: &[TensorDescriptor]) -> Vec<&TensorDescriptor> {
    members.iter().collect()
}

/// `members` with one in the middle twice, or missing, and the head told so.
fn spoil(mut members: Vec<TensorDescriptor>, twice: bool) -> Vec<TensorDescriptor> {
    let middle = members.len() / 2;
    if twice {
        members.push(members[middle].clone());
    } else {
        members.remove(middle);
    }
    let count = members.len() as u32 - 1;
    if let Layout::Composite(head) = &mut members[0].layout {
        head.member_count = count;
    }
    members
}

#[test]
fn a_partition_of_ten_times_the_members_costs_at_most_twelve_times_as_much() {
    let tilings = [
        ("rows", rows(10_000), rows(100_000)),
        ("grid", grid(100), grid(316)),
        ("rings", rings(2_500), rings(25_000)),
    ];
    for (name, small, large) in tilings {
        grows_with_its_members(name, &all(&small), &all(&large), "accepted");
        if name == "grid" {
            continue;
        }
        for (twice, expected) in [(true, "A11"), (false, "A12")] {
            let (small, large) = (spoil(small.clone(), twice), spoil(large.clone(), twice));
            grows_with_its_members(name, &all(&small), &all(&large), expected);
        }
    }
}

#[test]
fn any_composite_of_ten_times_the_members_costs_at_most_twelve_times_as_much() {
    let (small, large) = (10_000, 100_000);
    let shape = [1 << 20];
    let overlay_head = |count: usize| head(OVERLAY, &shape, count as u32);
    let base = layer(MemberRole::Base, &shape, &[0], &shape);
    let correction = layer(MemberRole::Correction, &shape, &[7], &[1]);
    let heads = [overlay_head(small), overlay_head(large)];
    // One and the same member: what is measured is the assembly, not how far its input is from the processor.
    let [few, many] = [(small, &heads[0]), (large, &heads[1])].map(|(count, head)| {
        let mut all = vec![head, &base];
        all.resize(count + 1, &correction);
        all
    });
    grows_with_its_members("overlay", &few, &many, "accepted");

    let member = tensor(&[1]);
    let heads = [small, large].map(|count| head(GROUP, &[], count as u32));
    let [few, many] = [(small, &heads[0]), (large, &heads[1])].map(|(count, head)| {
        let mut all = vec![head];
        all.resize(count + 1, &member);
        all
    });
    grows_with_its_members("group", &few, &many, "accepted");

    // Towers of 63 heads, one beside another.
    let (floor, top) = (head(GROUP, &[], 1), head(GROUP, &[], 0));
    let heads = [small, large].map(|count| head(GROUP, &[], (count / 63) as u32));
    let [few, many] = [(small, &heads[0]), (large, &heads[1])].map(|(count, head)| {
        let mut all = vec![head];
        for _ in 0..count / 63 {
            all.resize(all.len() + 62, &floor);
            all.push(&top);
        }
        all
    });
    grows_with_its_members("nested", &few, &many, "accepted");
}
