//! The entries of index buffers.

use super::*;

/// Numbers as a `uint64` buffer.
fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

fn contents(layout: Layout, shape: &[u64], buffers: &[Vec<u8>]) -> &'static str {
    let sizes: Vec<_> = buffers.iter().map(|b| b.len() as u64).collect();
    let descriptor = tensor(layout, shape, &sizes);
    assert_eq!(rule(&descriptor), "accepted");
    let slices: Vec<_> = buffers.iter().map(Vec::as_slice).collect();
    rule_of(validate_contents(&descriptor, &slices))
}

#[test]
fn o3_o4_o5_coordinates() {
    let list = |is_sorted, coordinates: &[[u64; 2]]| {
        let nnz = coordinates.len() as u64;
        let indices = u64s(coordinates.as_flattened());
        let layout = Layout::Coo(Coo { nnz, is_sorted });
        contents(layout, &[4, 5], &[vec![0; coordinates.len()], indices])
    };
    assert_eq!(list(true, &[[0, 0], [0, 4], [3, 0]]), "accepted");
    assert_eq!(list(false, &[[3, 0], [0, 4], [0, 0]]), "accepted");
    assert_eq!(list(false, &[[4, 0]]), "O3");
    assert_eq!(list(false, &[[0, 5]]), "O3");
    assert_eq!(list(true, &[[0, u64::MAX]]), "O3");
    assert_eq!(list(true, &[[0, 0], [0, 0]]), "O4");
    // Far apart.
    assert_eq!(list(false, &[[1, 1], [0, 0], [2, 0], [1, 1]]), "O4");
    assert_eq!(list(true, &[[1, 0], [0, 4]]), "O5");
    assert_eq!(list(true, &[]), "accepted");
    // Compared as numbers, not as little-endian bytes.
    let far = |is_sorted| {
        let layout = Layout::Coo(Coo { nnz: 2, is_sorted });
        contents(layout, &[1000], &[vec![0; 2], u64s(&[255, 256])])
    };
    assert_eq!(far(true), "accepted");
}

#[test]
fn r2_to_r5_and_k2_to_k5_compressed_slices() {
    let judge = |pointers: &[u64], coordinates: &[u64]| {
        let nnz = coordinates.len() as u64;
        let buffers = [
            vec![0; coordinates.len()],
            u64s(coordinates),
            u64s(pointers),
        ];
        (
            contents(Layout::Csr { nnz }, &[3, 4], &buffers),
            contents(Layout::Csc { nnz }, &[4, 3], &buffers),
        )
    };
    let accepted = ("accepted", "accepted");
    assert_eq!(judge(&[0, 2, 2, 3], &[0, 3, 1]), accepted);
    assert_eq!(judge(&[0, 0, 0, 0], &[]), accepted);
    assert_eq!(judge(&[1, 2, 2, 3], &[0, 3, 1]), ("R2", "K2"));
    assert_eq!(judge(&[0, 2, 2, 2], &[0, 3, 1]), ("R2", "K2"));
    assert_eq!(judge(&[0, 2, 2, u64::MAX], &[0, 3, 1]), ("R2", "K2"));
    assert_eq!(judge(&[0, 2, 1, 3], &[0, 3, 1]), ("R3", "K3"));
    assert_eq!(judge(&[0, u64::MAX, 2, 3], &[0, 3, 1]), ("R3", "K3"));
    assert_eq!(judge(&[0, 2, 2, 3], &[3, 0, 1]), ("R4", "K4"));
    assert_eq!(judge(&[0, 2, 2, 3], &[3, 3, 1]), ("R4", "K4"));
    assert_eq!(judge(&[0, 2, 2, 3], &[0, 4, 1]), ("R5", "K5"));
}

#[test]
fn f4_to_f8_fibres() {
    // (0,0,1) (0,2,3) (1,1,0) (1,1,2), as in the reference.
    let good = [
        vec![0, 2],
        vec![0, 1],
        vec![0, 2, 3],
        vec![0, 2, 1],
        vec![0, 1, 2, 4],
        vec![1, 3, 0, 2],
    ];
    let judge = |levels: &[Vec<u64>; 6]| {
        let mut buffers = vec![vec![0; 4]];
        buffers.extend(levels.iter().map(|level| u64s(level)));
        contents(csf(4, &[0, 1, 2]), &[2, 3, 4], &buffers)
    };
    assert_eq!(judge(&good), "accepted");
    for (level, at, value, expected) in [
        (0, 0, 1, "F4"),
        (2, 0, 1, "F4"),
        (4, 2, 0, "F5"),
        (2, 1, 4, "F5"),
        (0, 1, 3, "F6"),
        (4, 3, 3, "F6"),
        (2, 2, 2, "F6"),
        (1, 1, 0, "F7"),
        (5, 3, 0, "F7"),
        (1, 1, 2, "F8"),
        (3, 1, 3, "F8"),
        (5, 1, 4, "F8"),
        (0, 1, u64::MAX, "F6"),
    ] {
        let mut bad = good.clone();
        bad[level][at] = value;
        assert_eq!(judge(&bad), expected, "level {level} {at} {value}");
    }
    let empty = [
        vec![],
        u64s(&[0, 0]),
        vec![],
        u64s(&[0]),
        vec![],
        u64s(&[0]),
        vec![],
    ];
    assert_eq!(contents(csf(0, &[0, 1, 2]), &[2, 2, 2], &empty), "accepted");
}

#[test]
fn p10_to_p14_pages() {
    let judge = |tokens, table: &[u32], pointers: &[u32]| {
        let buffers = [vec![0; 12], u32s(table), u32s(pointers)];
        contents(Layout::BlockPaged(paged()), &[tokens, 1, 1], &buffers)
    };
    assert_eq!(judge(9, &[0, 2, 1], &[0, 2, 3]), "accepted");
    // Pages may be shared, sequences empty.
    assert_eq!(judge(5, &[2, 2], &[0, 2, 2]), "accepted");
    assert_eq!(judge(0, &[], &[0, 0, 0]), "accepted");
    assert_eq!(judge(9, &[0, 2, 1], &[1, 2, 3]), "P10");
    assert_eq!(judge(9, &[0, 2, 1], &[0, 4, 3]), "P11");
    assert_eq!(judge(9, &[0, 2, 1], &[0, 2, 2]), "P12");
    assert_eq!(judge(9, &[0, 2, 1], &[0, 2, 4]), "P12");
    assert_eq!(judge(9, &[0, 3, 1], &[0, 2, 3]), "P13");
    // Two and one pages of four: 4 + 1 + 1 to 12 tokens.
    for (tokens, expected) in [(5, "P14"), (6, "accepted"), (12, "accepted"), (13, "P14")] {
        assert_eq!(judge(tokens, &[0, 2, 1], &[0, 2, 3]), expected, "{tokens}");
    }
}

/// Bytes that are shorter than their rows give an error, not a panic.
#[test]
fn p10_to_p13_entries_of_index_buffers() {
    let paged = BlockPaged {
        num_pages: 3,
        num_seqs: 2,
        ..paged()
    };
    let rule = |pointers: &[u64], table: &[u64]| rule_of(paged.validate_indices(pointers, table));
    assert_eq!(rule(&[0, 1, 3], &[0, 1, 2]), "accepted");
    assert_eq!(
        rule(&[0, 0, 2], &[1, 1]),
        "accepted",
        "an empty sequence, a shared page"
    );
    assert_eq!(rule(&[0, 0, 0], &[]), "accepted");
    assert_eq!(rule(&[0, 1], &[0]), "P10");
    assert_eq!(rule(&[], &[]), "P10");
    assert_eq!(rule(&[1, 1, 3], &[0, 1, 2]), "P10");
    assert_eq!(rule(&[0, 2, 1], &[0]), "P11");
    assert_eq!(rule(&[0, 1, 3], &[0, 1]), "P12");
    assert_eq!(rule(&[0, 1, 2], &[0, 1, 2]), "P12");
    assert_eq!(rule(&[0, 1, 2, 3], &[0, 1, 2]), "P12");
    assert_eq!(rule(&[0, 1, 3], &[0, 1, 3]), "P13");
}

#[test]
fn contents_of_missing_bytes_are_refused() {
    let cases = [
        (coo(2), &[4, 4][..], "B4"),
        (Layout::Csr { nnz: 2 }, &[4, 4], "B4"),
        (csf(2, &[0, 1, 2]), &[4, 4, 4], "F6"),
        (Layout::BlockPaged(paged()), &[4, 4, 4], "P10"),
    ];
    for (layout, shape, expected) in cases {
        let descriptor = tensor(layout, shape, &[]);
        let judged = rule_of(validate_contents(&descriptor, &[]));
        assert_eq!(judged, expected);
    }
}
