//! Arithmetic against models that count one element, bit or step at a time.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    reason = "in tests a panic is the report"
)]

#[allow(dead_code, reason = "each test uses its part")]
mod arbitrary;

use std::collections::{HashMap, HashSet};

use hurray_core::composite::Assembler;
use hurray_core::{
    BufferHandle, DYNAMIC, DeviceTag, ElementType, Hilbert, InnerOrder, Layout, LayoutError,
    MemoryClass, Morton, StorageWidth, SyncMode, TensorDescriptor, TileLevel, TileOrder,
    element_count, is_column_major, is_row_major, row_major_strides, strided_extent,
    validate_colocation, validate_contents,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn every_index(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![vec![]], |indices, &size| {
        indices
            .iter()
            .flat_map(|index| (0..size).map(move |i| [&index[..], &[i]].concat()))
            .collect()
    })
}

fn shape() -> impl Strategy<Value = Vec<u64>> {
    vec(0..6_u64, 0..=4)
}

/// Strides that give every element a place of its own: those of a permutation of the dimensions with gaps, some of them backwards.
fn injective_strides(shape: &[u64]) -> impl Strategy<Value = Vec<i64>> + use<> {
    let shape = shape.to_vec();
    let rank = shape.len();
    (
        Just((0..rank).collect::<Vec<_>>()).prop_shuffle(),
        vec((0..3_i64, any::<bool>()), rank),
    )
        .prop_map(move |(order, gaps)| {
            let mut strides = vec![0; rank];
            let mut next = 1;
            for dimension in order {
                let (gap, backwards) = gaps[dimension];
                let stride = next + gap;
                strides[dimension] = if backwards { -stride } else { stride };
                next += stride * (shape[dimension].max(1) as i64 - 1);
            }
            strides
        })
}

fn tile_order(grid: &[u64]) -> BoxedStrategy<TileOrder> {
    prop_oneof![
        Just(TileOrder::RowMajor),
        Just(TileOrder::ColumnMajor),
        injective_strides(grid).prop_map(|strides| TileOrder::Strided(strides.into())),
    ]
    .boxed()
}

/// A level over `dims`, whose nested level, if any, divides its tile. Strides inside a tile stay inside it, so that no place is shared.
fn level(dims: Vec<u64>, depth: usize) -> BoxedStrategy<TileLevel> {
    let nested = depth > 0;
    let tile = dims
        .iter()
        .map(|&dim| {
            if nested {
                let divisors: Vec<_> = (1..=dim).filter(|d| dim.is_multiple_of(*d)).collect();
                select(divisors).boxed()
            } else {
                (1..5_u64).boxed()
            }
        })
        .collect::<Vec<_>>();
    tile.prop_flat_map(move |tile| {
        let grid: Vec<_> = dims
            .iter()
            .zip(&tile)
            .map(|(d, t)| d.div_ceil(*t))
            .collect();
        // Outer strides inside a tile would leave its places.
        let outer = if nested {
            select(vec![TileOrder::RowMajor, TileOrder::ColumnMajor]).boxed()
        } else {
            tile_order(&grid)
        };
        let flat = select(vec![InnerOrder::RowMajor, InnerOrder::ColumnMajor]);
        let dense = Just(tile.clone()).prop_map(|tile| {
            InnerOrder::Strided(
                row_major_strides(&tile)
                    .unwrap()
                    .iter()
                    .map(|s| -s)
                    .collect(),
            )
        });
        let inner = if depth < 3 {
            let deeper =
                level(tile.clone(), depth + 1).prop_map(|level| InnerOrder::Tiled(Box::new(level)));
            prop_oneof![flat, dense, deeper].boxed()
        } else {
            flat.boxed()
        };
        (Just(tile), outer, inner).prop_map(|(tile, outer, inner)| TileLevel {
            tile_shape: tile.into(),
            outer,
            inner,
        })
    })
    .boxed()
}

/// A dense layout that gives every element of its shape a place of its own.
fn dense() -> impl Strategy<Value = (Layout, Vec<u64>)> {
    let non_empty = vec(1..6_u64, 1..=3);
    prop_oneof![
        shape().prop_map(|shape| (Layout::RowMajor, shape)),
        vec(0..6_u64, 1..=4).prop_map(|shape| (Layout::ColumnMajor, shape)),
        vec(0..6_u64, 1..=4).prop_flat_map(|shape| {
            injective_strides(&shape)
                .prop_map(move |strides| (Layout::Strided(strides.into()), shape.clone()))
        }),
        non_empty.prop_flat_map(|shape| {
            level(shape.clone(), 0)
                .prop_map(move |level| (Layout::Tiled(Box::new(level)), shape.clone()))
        }),
        vec((1..5_u32, any::<u64>()), 1..=4).prop_map(|dims| {
            let (bits, sizes): (Vec<_>, Vec<_>) = dims
                .into_iter()
                .map(|(bits, size)| (bits, size % ((1 << bits) + 1)))
                .unzip();
            (Layout::Morton(Morton { bits: bits.into() }), sizes)
        }),
        (1..4_u32, 2..5_u32)
            .prop_filter("few elements", |(order, rank)| order * rank <= 9)
            .prop_map(|(order, rank)| {
                let shape = vec![1 << order; rank as usize];
                (Layout::Hilbert(Hilbert { order, rank }), shape)
            }),
    ]
}

fn tensor(layout: Layout, shape: &[u64], element_type: ElementType) -> TensorDescriptor {
    let row = BufferHandle {
        byte_size: 0,
        alignment: 64,
        device: DeviceTag::Cpu,
        sync_mode: SyncMode::ProducerSynced,
        memory_class: MemoryClass::Standard,
    };
    TensorDescriptor::new(element_type, shape, layout, [row])
}

fn named_type() -> impl Strategy<Value = ElementType> {
    select(ElementType::named().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(config())]

    /// Every element has a place of its own inside the extent; a buffer of exactly the extent's bytes passes, one byte less does not, and
    /// every address lies in it.
    #[test]
    fn dense_layouts_give_every_element_its_own_place((layout, shape) in dense(), element_type in named_type()) {
        prop_assert_eq!(layout.validate(&shape), Ok(()));
        let extent = layout.extent(&shape).unwrap();
        let mut places = HashSet::new();
        for index in every_index(&shape) {
            let offset = layout.element_offset(&shape, &index).unwrap();
            let extent = extent.unwrap();
            prop_assert!(extent.lo <= offset && offset <= extent.hi, "{offset} {extent:?}");
            prop_assert!(places.insert(offset), "{index:?}");
        }
        prop_assert_eq!(extent.is_none(), places.is_empty());

        let mut descriptor = tensor(layout, &shape, element_type);
        let width = descriptor.element_width().unwrap();
        let bytes = extent.map_or(Default::default(), |extent| extent.bytes(width).unwrap());
        descriptor.byte_offset = bytes.before;
        descriptor.buffers[0].byte_size = bytes.before + bytes.after;
        prop_assert_eq!(descriptor.validate(), Ok(()));
        let mut bits = HashSet::new();
        for index in every_index(&shape) {
            let address = descriptor.element_address(&index).unwrap();
            prop_assert!(address.byte + u64::from(address.length) <= bytes.before + bytes.after);
            prop_assert!(bits.insert((address.byte, address.bit_shift)));
        }
        if bytes.after > 0 {
            descriptor.buffers[0].byte_size -= 1;
            prop_assert_eq!(descriptor.validate().unwrap_err().rule(), "B4");
        }
        if bytes.before > 0 {
            descriptor.byte_offset -= 1;
            prop_assert_eq!(descriptor.validate().unwrap_err().rule(), "S2");
        }
    }

    /// The lowest and the highest of all offsets, counted one by one.
    #[test]
    fn strided_extent_is_what_counting_finds(dims in vec((0..6_u64, -20..20_i64), 0..=4)) {
        let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        let offsets: Vec<i64> = every_index(&shape)
            .iter()
            .map(|index| index.iter().zip(&strides).map(|(&i, s)| i as i64 * s).sum())
            .collect();
        let extent = strided_extent(&shape, &strides).unwrap();
        prop_assert_eq!(extent.map(|e| e.lo), offsets.iter().copied().min());
        prop_assert_eq!(extent.map(|e| e.hi), offsets.iter().copied().max());
        for (index, offset) in every_index(&shape).iter().zip(offsets) {
            let layout = Layout::Strided(strides.as_slice().into());
            prop_assert_eq!(layout.element_offset(&shape, index), Ok(offset));
        }
    }

    /// In exact arithmetic, or refused.
    #[test]
    fn strided_extent_never_wraps(dims in vec((any::<u64>(), any::<i64>()), 0..=5)) {
        let (shape, strides): (Vec<u64>, Vec<i64>) = dims.into_iter().unzip();
        match strided_extent(&shape, &strides) {
            Ok(Some(extent)) => {
                // Products of 127 bits, in numbers that hold their sums.
                let reach = |sign: f64| -> f64 {
                    shape
                        .iter()
                        .zip(&strides)
                        .map(|(&n, &s)| (n - 1) as f64 * s as f64)
                        .filter(|reach| reach * sign > 0.0)
                        .sum()
                };
                let close = |exact: i64, float: f64| (exact as f64 - float).abs() <= 1e-9 * float.abs();
                prop_assert!(close(extent.lo, reach(-1.0)));
                prop_assert!(close(extent.hi, reach(1.0)));
            }
            Ok(None) => prop_assert!(shape.contains(&0)),
            Err(LayoutError::DynamicDimension { dimension }) => prop_assert_eq!(shape[dimension], DYNAMIC),
            Err(error) => prop_assert_eq!(error, LayoutError::ExtentOverflow),
        }
    }

    #[test]
    fn row_major_strides_are_row_major(shape in shape()) {
        let strides = row_major_strides(&shape).unwrap();
        prop_assert!(is_row_major(&shape, &strides));
        let reversed: Vec<_> = shape.iter().rev().copied().collect();
        let backwards: Vec<_> = strides.iter().rev().copied().collect();
        prop_assert!(is_column_major(&reversed, &backwards));
        let layout = Layout::Strided(strides);
        for index in every_index(&shape) {
            prop_assert_eq!(
                layout.element_offset(&shape, &index),
                Layout::RowMajor.element_offset(&shape, &index)
            );
        }
    }

    /// An order is row-major exactly when its offsets are.
    #[test]
    fn is_row_major_looks_at_offsets(dims in vec((0..4_u64, -1..5_i64), 0..=3)) {
        let (shape, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        let layout = Layout::Strided(strides.as_slice().into());
        let same = |order: Layout| every_index(&shape).iter().all(|index| {
            layout.element_offset(&shape, index) == order.element_offset(&shape, index)
        });
        prop_assert_eq!(is_row_major(&shape, &strides), same(Layout::RowMajor));
        prop_assert_eq!(is_column_major(&shape, &strides), same(Layout::ColumnMajor));
    }

    /// Elements laid bit by bit: as many bytes as the last one touches, in whole units.
    #[test]
    fn sizes_and_positions_are_those_of_a_bit_stream(
        bits in select(vec![1_u32, 2, 4, 6, 8, 16, 24, 64, 128]),
        count in 0..50_u64,
        offset in -50..50_i64,
    ) {
        let width = StorageWidth::from_bits(bits).unwrap();
        let mut bytes = (count * u64::from(bits)).div_ceil(8);
        while bits == 6 && !bytes.is_multiple_of(3) {
            bytes += 1;
        }
        prop_assert_eq!(width.byte_size(count), Some(bytes));
        // The stream's bit 0 is bit 0 of byte 0, also going down.
        let first = i128::from(offset) * i128::from(bits);
        let position = width.position(offset);
        prop_assert_eq!(position.byte * 8 + i128::from(position.bit_shift), first);
        let unit = i128::from(width.unit_bytes());
        prop_assert_eq!(position.byte.rem_euclid(unit), 0);
        prop_assert!(i128::from(position.bit_shift + bits) <= unit * 8);
    }

    #[test]
    fn element_count_is_the_product(shape in vec(prop_oneof![0..9_u64, any::<u64>()], 0..=5)) {
        let product = shape.iter().try_fold(1_u128, |product, &n| product.checked_mul(n.into()));
        let expected = match product {
            _ if shape.contains(&DYNAMIC) => None,
            _ if shape.contains(&0) => Some(0),
            Some(product) => u64::try_from(product).ok(),
            None => None,
        };
        prop_assert_eq!(element_count(&shape), expected);
    }

    /// Whatever a descriptor says, asking about it gives an answer.
    #[test]
    fn no_descriptor_makes_a_check_panic(
        descriptor in arbitrary::descriptor(),
        index in vec(any::<u64>(), 0..5),
        bytes in vec(vec(any::<u8>(), 0..40), 0..8),
    ) {
        let verdict = descriptor.validate();
        let zeros = vec![0; descriptor.shape.len()];
        for index in [&index, &zeros] {
            let _ = descriptor.element_address(index);
        }
        let _ = descriptor.layout.validate(&descriptor.shape);
        let extent = descriptor.layout.extent(&descriptor.shape);
        let plan = descriptor.buffer_plan();
        let slices: Vec<_> = bytes.iter().map(Vec::as_slice).collect();
        let _ = validate_contents(&descriptor, &slices);
        let mut assembler = Assembler::new();
        let _ = assembler.push(&descriptor);
        let _ = assembler.push(&descriptor);
        if verdict.is_ok() && !descriptor.layout.is_virtual() {
            prop_assert!(validate_colocation(&descriptor.buffers).is_ok());
            prop_assert!(!descriptor.layout.is_dense() || extent.is_ok());
            for (planned, row) in plan.unwrap().iter().zip(&descriptor.buffers) {
                prop_assert!(planned.byte_size <= row.byte_size);
            }
        }
    }
}

/// The bits of `code` back in their dimensions.
fn morton_index(bits: &[u32], code: u64) -> Vec<u64> {
    let rank = bits.len() as u32;
    (0..rank)
        .zip(bits)
        .map(|(d, &bits)| (0..bits).map(|b| ((code >> (b * rank + d)) & 1) << b).sum())
        .collect()
}

#[test]
fn morton_codes_go_back_to_their_index() {
    for bits in [
        &[3][..],
        &[2, 2],
        &[2, 3],
        &[3, 1],
        &[1, 2, 3],
        &[1, 1, 1, 1],
    ] {
        let layout = Layout::Morton(Morton { bits: bits.into() });
        let shape: Vec<_> = bits.iter().map(|&bits| 1 << bits).collect();
        for index in every_index(&shape) {
            let code = layout.element_offset(&shape, &index).unwrap();
            assert_eq!(morton_index(bits, code as u64), index);
        }
    }
}

/// Offset to index by the inverse of `layouts.md` § 4.5.
fn hilbert_index(order: u32, rank: usize, offset: u64) -> Vec<u64> {
    let mut x = vec![0_u64; rank];
    for b in 0..order {
        for (d, x) in x.iter_mut().enumerate() {
            *x |= ((offset >> (b as usize * rank + rank - 1 - d)) & 1) << b;
        }
    }
    let carry = x[rank - 1] >> 1;
    for i in (1..rank).rev() {
        x[i] ^= x[i - 1];
    }
    x[0] ^= carry;
    for j in 1..order {
        let m = (1 << j) - 1;
        for i in (0..rank).rev() {
            if x[i] >> j & 1 == 1 {
                x[0] ^= m;
            } else {
                let s = (x[0] ^ x[i]) & m;
                x[0] ^= s;
                x[i] ^= s;
            }
        }
    }
    x
}

#[test]
fn hilbert_curves_visit_every_element_in_single_steps() {
    for (order, rank) in [(1, 2), (2, 2), (5, 2), (1, 3), (3, 3), (2, 4), (1, 6)] {
        let layout = Layout::Hilbert(Hilbert { order, rank });
        let shape = vec![1_u64 << order; rank as usize];
        let by_offset: HashMap<i64, Vec<u64>> = every_index(&shape)
            .into_iter()
            .map(|index| (layout.element_offset(&shape, &index).unwrap(), index))
            .collect();
        let count = 1_i64 << (order * rank);
        assert_eq!(by_offset.len() as i64, count);
        for offset in 0..count {
            let index = &by_offset[&offset];
            assert_eq!(&hilbert_index(order, rank as usize, offset as u64), index);
            if let Some(before) = offset.checked_sub(1).and_then(|o| by_offset.get(&o)) {
                let steps: u64 = before.iter().zip(index).map(|(a, b)| a.abs_diff(*b)).sum();
                assert_eq!(steps, 1, "{before:?} {index:?}");
            }
        }
    }
}

#[test]
fn hilbert_and_morton_codes_of_63_bits_are_exact() {
    let shape = [1 << 21; 3];
    let hilbert = Layout::Hilbert(Hilbert { order: 21, rank: 3 });
    let morton = Layout::Morton(Morton {
        bits: [21; 3].as_slice().into(),
    });
    for index in [
        [0, 0, 0],
        [1, 2, 3],
        [(1 << 21) - 1; 3],
        [1 << 20, 77, 123_456],
    ] {
        let offset = hilbert.element_offset(&shape, &index).unwrap();
        assert_eq!(hilbert_index(21, 3, offset as u64), index);
        let code = morton.element_offset(&shape, &index).unwrap();
        assert_eq!(morton_index(&[21; 3], code as u64), index);
    }
    assert_eq!(morton.extent(&shape).unwrap().unwrap().hi, i64::MAX);
}

/// The element offsets that `layouts.md` prints.
#[test]
fn worked_examples_of_the_reference() {
    let shape = [3, 4];
    assert_eq!(Layout::RowMajor.element_offset(&shape, &[1, 2]), Ok(6));
    assert_eq!(Layout::ColumnMajor.element_offset(&shape, &[1, 2]), Ok(7));
    let strided = Layout::Strided([-4, 1].as_slice().into());
    assert_eq!(strided.element_offset(&shape, &[2, 3]), Ok(-5));
    let tiled = Layout::Tiled(Box::new(TileLevel {
        tile_shape: [2, 4].as_slice().into(),
        outer: TileOrder::RowMajor,
        inner: InnerOrder::RowMajor,
    }));
    assert_eq!(tiled.element_offset(&[6, 8], &[3, 5]), Ok(29));
    let hilbert = Layout::Hilbert(Hilbert { order: 2, rank: 3 });
    for (index, offset) in [
        ([0, 0, 1], 7),
        ([3, 3, 3], 45),
        ([1, 2, 3], 22),
        ([3, 0, 0], 63),
        ([0, 3, 0], 29),
        ([2, 1, 0], 61),
    ] {
        assert_eq!(hilbert.element_offset(&[4; 3], &index), Ok(offset));
    }
}
