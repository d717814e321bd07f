//! Q15–Q26, P7–P9 and decision 3: schemes against the tensors they quantize.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in tests a panic is the report"
)]

#[allow(dead_code, reason = "each test reads its part of the vectors")]
mod vectors;

use hurray_core::{
    BlockAffine, BlockPaged, BufferHandle, BufferName, ChannelAffine, Coo, DYNAMIC, DeviceTag,
    ElementType, Error, IndexType, KvRole, Layout, MemoryClass, Mxfp, Nf4, QuantizationScheme,
    QuantizationSection, ScaleType, SyncMode, TensorAffine, TensorDescriptor,
    validate_buffer_placement, validate_contents,
};
use serde_json::Value;
use smallvec::smallvec;
use vectors::{bytes, hex, manifest, text};

const MANIFEST: &str = "quantization/manifest.json";

fn row(byte_size: u64) -> BufferHandle {
    BufferHandle {
        byte_size,
        alignment: 64,
        device: DeviceTag::Cpu,
        sync_mode: SyncMode::ProducerSynced,
        memory_class: MemoryClass::Standard,
    }
}

/// A row-major tensor whose rows have these bytes.
fn tensor(
    element_type: ElementType,
    shape: &[u64],
    section: QuantizationSection,
    sizes: &[u64],
) -> TensorDescriptor {
    TensorDescriptor {
        quantization: Some(section),
        ..TensorDescriptor::new(
            element_type,
            shape,
            Layout::RowMajor,
            sizes.iter().map(|&size| row(size)),
        )
    }
}

fn channel(axis: u32, zero_point_buffer: Option<u32>) -> QuantizationScheme {
    QuantizationScheme::ChannelAffine(ChannelAffine {
        axis,
        scale_buffer: 1,
        zero_point_buffer,
    })
}

fn block(axis: u32, block_size: u32, zero_point_buffer: Option<u32>) -> QuantizationScheme {
    QuantizationScheme::BlockAffine(BlockAffine {
        axis,
        block_size,
        scale_buffer: 1,
        zero_point_buffer,
        scale_type: ScaleType::Float32,
    })
}

fn nf4(block_size: u32) -> QuantizationScheme {
    QuantizationScheme::Nf4(Nf4 {
        axis: 0,
        block_size,
        scale_buffer: 1,
    })
}

fn mxfp(block_size: u32) -> QuantizationScheme {
    QuantizationScheme::Mxfp(Mxfp {
        axis: 0,
        block_size,
        scale_buffer: 1,
    })
}

fn affine(zero_point: i32) -> QuantizationScheme {
    QuantizationScheme::TensorAffine(TensorAffine {
        scale: 0.5,
        zero_point,
    })
}

fn rule(descriptor: &TensorDescriptor) -> &'static str {
    descriptor
        .validate()
        .map_or_else(|error| error.rule(), |()| "accepted")
}

/// The rule by which a row-major tensor is refused.
fn judge(
    element_type: ElementType,
    shape: &[u64],
    scheme: QuantizationScheme,
    sizes: &[u64],
) -> &'static str {
    rule(&tensor(element_type, shape, scheme.encode(), sizes))
}

#[test]
fn golden_cases_validate() {
    for case in manifest(MANIFEST, "cases") {
        let file = bytes(&format!("quantization/{}", text(&case, "descriptor")));
        let (descriptor, _) = TensorDescriptor::decode(&file).unwrap();
        assert_eq!(descriptor.validate(), Ok(()), "{case}");
        let buffers: Vec<_> = case["buffers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|buffer| bytes(&format!("quantization/{}", text(buffer, "file"))))
            .collect();
        let slices: Vec<_> = buffers.iter().map(Vec::as_slice).collect();
        assert_eq!(validate_contents(&descriptor, &slices), Ok(()), "{case}");
        let plan = descriptor.buffer_plan().unwrap();
        assert_eq!(plan.len(), buffers.len(), "{case}");
        for (planned, buffer) in plan.iter().zip(&buffers) {
            assert!(planned.byte_size <= buffer.len() as u64, "{case}");
        }
    }
}

fn misfit(case: &Value) -> Result<(), Error> {
    let shape: Vec<u64> = serde_json::from_value(case["shape"].clone()).unwrap();
    let tag = u8::try_from(case["type_tag"].as_u64().unwrap()).unwrap();
    let buffers: Vec<_> = case["buffers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|buffer| hex(buffer.as_str().unwrap()))
        .collect();
    let sizes: Vec<_> = buffers.iter().map(|b| b.len() as u64).collect();
    let section = QuantizationSection::from_bytes(&hex(text(case, "section")));
    let built = tensor(ElementType::from_tag(tag).unwrap(), &shape, section, &sizes);
    if let Some(descriptor) = case["descriptor"].as_str() {
        let (decoded, _) = TensorDescriptor::decode(&hex(descriptor)).unwrap();
        assert_eq!(
            (decoded.shape, decoded.quantization, decoded.element_type),
            (
                built.shape.clone(),
                built.quantization.clone(),
                built.element_type
            ),
        );
    }
    built.validate()?;
    let slices: Vec<_> = buffers.iter().map(Vec::as_slice).collect();
    validate_contents(&built, &slices)
}

#[test]
fn schemes_that_do_not_fit_are_refused_for_their_rule() {
    for case in manifest(MANIFEST, "bad_semantics") {
        let error = misfit(&case)
            .err()
            .unwrap_or_else(|| panic!("accepted: {case}"));
        assert_eq!(error.rule(), text(&case, "rule"), "{case}: {error}");
    }
}

#[test]
fn q15_each_scheme_takes_its_own_storage_types() {
    let accepted = |scheme: QuantizationScheme| -> Vec<u8> {
        ElementType::named()
            .filter(|&element_type| scheme.accepts(element_type))
            .map(ElementType::tag)
            .collect()
    };
    let affine_types = [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x48, 0x49, 0x4A, 0x4B];
    assert_eq!(accepted(affine(0)), affine_types);
    assert_eq!(accepted(channel(0, None)), affine_types);
    let narrow = [0x10, 0x11, 0x48, 0x49, 0x4A, 0x4B];
    assert_eq!(accepted(block(0, 2, None)), narrow);
    assert_eq!(accepted(nf4(8)), [0x49]);
    let mx = [0x10, 0x40, 0x41, 0x43, 0x44, 0x45, 0x48];
    assert_eq!(accepted(mxfp(16)), mx);
    assert_eq!(judge(ElementType::Float32, &[4], affine(0), &[16]), "Q15");
    assert_eq!(judge(ElementType::Int8, &[4], affine(0), &[4]), "accepted");
}

#[test]
fn q16_a_zero_point_is_a_code() {
    for (element_type, least, most) in [
        (ElementType::Int8, -128, 127),
        (ElementType::Uint8, 0, 255),
        (ElementType::Int4, -8, 7),
        (ElementType::Uint2, 0, 3),
        (ElementType::Uint32, 0, i32::MAX),
    ] {
        for zero_point in [least, most] {
            let rule = judge(element_type, &[1], affine(zero_point), &[4]);
            assert_eq!(rule, "accepted", "{element_type} {zero_point}");
        }
        assert_eq!(judge(element_type, &[1], affine(least - 1), &[4]), "Q16");
        if let Some(above) = most.checked_add(1) {
            assert_eq!(judge(element_type, &[1], affine(above), &[4]), "Q16");
        }
    }
}

#[test]
fn q17_the_axis_exists() {
    let int8 = ElementType::Int8;
    assert_eq!(judge(int8, &[2, 3], channel(1, None), &[6, 12]), "accepted");
    assert_eq!(judge(int8, &[2, 3], channel(2, None), &[6, 12]), "Q17");
    assert_eq!(judge(int8, &[], channel(0, None), &[1, 4]), "Q17");
    assert_eq!(judge(int8, &[2], channel(u32::MAX, None), &[2, 4]), "Q17");
}

#[test]
fn q18_the_axis_is_known() {
    assert_eq!(
        judge(ElementType::Int8, &[DYNAMIC], channel(0, None), &[0, 4]),
        "Q18"
    );
    // G7: another dimension that is not known.
    assert_eq!(
        judge(ElementType::Int8, &[1, DYNAMIC], channel(0, None), &[0, 4]),
        "G7"
    );
}

#[test]
fn q19_a_block_is_no_longer_than_its_axis() {
    let int8 = ElementType::Int8;
    assert_eq!(judge(int8, &[4], block(0, 4, None), &[4, 4]), "accepted");
    assert_eq!(judge(int8, &[4], block(0, 8, None), &[4, 4]), "Q19");
    // An empty axis keeps its block size.
    assert_eq!(judge(int8, &[0], block(0, 8, None), &[0, 0]), "accepted");
    assert_eq!(judge(ElementType::Uint4, &[4], nf4(8), &[2, 4]), "Q19");
}

#[test]
fn q20_mxfp_blocks_fill_their_axis() {
    let int8 = ElementType::Int8;
    assert_eq!(judge(int8, &[32], mxfp(16), &[32, 2]), "accepted");
    assert_eq!(judge(int8, &[31], mxfp(16), &[31, 2]), "Q20");
    assert_eq!(judge(int8, &[0], mxfp(16), &[0, 0]), "Q20");
}

#[test]
fn q21_and_q22_parameter_buffers_are_in_the_table_and_not_the_layouts() {
    let scheme = |scale_buffer, zero_point_buffer| {
        QuantizationScheme::ChannelAffine(ChannelAffine {
            axis: 0,
            scale_buffer,
            zero_point_buffer,
        })
    };
    let csr = Layout::Csr { nnz: 1 };
    let place = |layout: &Layout, scheme: QuantizationScheme, count| {
        validate_buffer_placement(layout, 2, Some(&scheme), count)
            .map_or_else(|error| error.rule(), |()| "accepted")
    };
    assert_eq!(place(&csr, scheme(3, None), 4), "accepted");
    assert_eq!(place(&csr, scheme(4, Some(3)), 5), "accepted");
    assert_eq!(place(&csr, scheme(3, Some(3)), 4), "accepted");
    assert_eq!(place(&csr, scheme(2, None), 4), "Q22");
    assert_eq!(place(&csr, scheme(3, Some(0)), 4), "Q22");
    assert_eq!(place(&csr, scheme(4, None), 4), "Q21");
    assert_eq!(place(&csr, scheme(3, Some(u32::MAX - 1)), 4), "Q21");
    // B2: one row too many, one too few.
    assert_eq!(place(&csr, scheme(3, None), 5), "B2");
    assert_eq!(place(&Layout::RowMajor, affine(0), 2), "B2");
    // The first buffer is a private layout's, whatever it owns besides.
    let private = private_layout();
    assert_eq!(place(&private, scheme(1, None), 7), "accepted");
    assert_eq!(place(&private, scheme(0, None), 7), "Q22");
    assert_eq!(place(&private, scheme(7, None), 7), "Q21");
}

fn private_layout() -> Layout {
    Layout::Private(hurray_core::PrivateLayout {
        tag: hurray_core::PrivateTag::new(0xF0).unwrap(),
        id: 1,
        data: Vec::new(),
    })
}

#[test]
fn q23_parameters_are_where_the_data_is() {
    let mut descriptor = tensor(ElementType::Int8, &[2], channel(0, None).encode(), &[2, 8]);
    assert_eq!(rule(&descriptor), "accepted");
    descriptor.buffers[1].device = DeviceTag::Cuda;
    // S3 and B8 say the same of every row.
    assert_eq!(rule(&descriptor), "S3");
    descriptor.buffers[1].device = DeviceTag::Cpu;
    descriptor.buffers[1].memory_class = MemoryClass::HostPinned;
    assert_eq!(rule(&descriptor), "S4");
}

#[test]
fn q24_parameter_buffers_are_exactly_as_large_as_their_entries() {
    let int8 = ElementType::Int8;
    let cases: [(&[u64], QuantizationScheme, &[u64]); 6] = [
        (&[3, 2], channel(0, None), &[6, 12]),
        (&[3, 2], channel(0, Some(2)), &[6, 12, 12]),
        // Scales, then zero points.
        (&[3, 2], channel(0, Some(1)), &[6, 24]),
        // ceil(5 / 2) blocks in each of two rows.
        (&[2, 5], block(1, 2, None), &[10, 24]),
        (&[5, 2], block(0, 2, Some(2)), &[10, 24, 24]),
        (&[32], mxfp(16), &[32, 2]),
    ];
    for (shape, scheme, sizes) in cases {
        assert_eq!(judge(int8, shape, scheme, sizes), "accepted");
        for buffer in 1..sizes.len() {
            for wrong in [sizes[buffer] - 1, sizes[buffer] + 1, 0] {
                let mut sizes = sizes.to_vec();
                sizes[buffer] = wrong;
                assert_eq!(judge(int8, shape, scheme, &sizes), "Q24");
            }
        }
    }
}

#[test]
fn q24_counts_that_do_not_fit_are_refused() {
    let mut descriptor = tensor(
        ElementType::Int8,
        &[1 << 40, 1 << 40],
        block(0, 2, None).encode(),
        &[0, 0, 0],
    );
    descriptor.layout = Layout::Coo(Coo {
        nnz: 0,
        is_sorted: false,
    });
    descriptor.quantization = Some(
        QuantizationScheme::BlockAffine(BlockAffine {
            axis: 0,
            block_size: 2,
            scale_buffer: 2,
            zero_point_buffer: None,
            scale_type: ScaleType::Float16,
        })
        .encode(),
    );
    assert_eq!(rule(&descriptor), "Q24");
}

#[test]
fn q25_and_q26_parameters_are_scales_and_codes() {
    let contents = |scheme: QuantizationScheme, element_type, parameters: &[&[u8]]| {
        let mut sizes = vec![16];
        sizes.extend(parameters.iter().map(|p| p.len() as u64));
        let shape = [if matches!(scheme, QuantizationScheme::Mxfp(_)) {
            16
        } else {
            8
        }];
        let descriptor = tensor(element_type, &shape, scheme.encode(), &sizes);
        let data = [0; 16];
        let mut buffers: Vec<&[u8]> = vec![&data];
        buffers.extend(parameters);
        validate_contents(&descriptor, &buffers).map_or_else(|error| error.rule(), |()| "accepted")
    };
    let f32s = |scale: f32| scale.to_le_bytes();
    for (scale, fits_affine, fits_nf4) in [
        (1.0, true, true),
        (-1.0, true, false),
        (0.0, false, true),
        (-0.0, false, true),
        (f32::INFINITY, false, false),
        (f32::NEG_INFINITY, false, false),
        (f32::NAN, false, false),
        (1e-45, true, true),
    ] {
        let expected = |fits| if fits { "accepted" } else { "Q25" };
        let by_block = contents(block(0, 8, None), ElementType::Int8, &[&f32s(scale)]);
        assert_eq!(by_block, expected(fits_affine), "{scale}");
        let by_level = contents(nf4(8), ElementType::Uint4, &[&f32s(scale)]);
        assert_eq!(by_level, expected(fits_nf4), "{scale}");
    }
    for (scale_type, bits, expected) in [
        (ScaleType::Float16, 0x3C00_u16, "accepted"),
        (ScaleType::Float16, 0x7C00, "Q25"),
        (ScaleType::Float16, 0x8000, "Q25"),
        (ScaleType::Bfloat16, 0x7C00, "accepted"),
        (ScaleType::Bfloat16, 0x7F81, "Q25"),
        (ScaleType::Bfloat16, 0x0000, "Q25"),
    ] {
        let scheme = QuantizationScheme::BlockAffine(BlockAffine {
            axis: 0,
            block_size: 8,
            scale_buffer: 1,
            zero_point_buffer: None,
            scale_type,
        });
        let judged = contents(scheme, ElementType::Int8, &[&bits.to_le_bytes()]);
        assert_eq!(judged, expected, "{scale_type:?} {bits:#x}");
    }
    for (byte, expected) in [(0, "Q25"), (1, "accepted"), (254, "accepted"), (255, "Q25")] {
        assert_eq!(contents(mxfp(16), ElementType::Int8, &[&[byte]]), expected);
    }
    for (zero_point, expected) in [(-8, "accepted"), (7, "accepted"), (8, "Q26"), (-9, "Q26")] {
        let zero_point = i32::to_le_bytes(zero_point);
        let apart = [&f32s(1.0)[..], &zero_point];
        let judged = contents(block(0, 8, Some(2)), ElementType::Int4, &apart);
        assert_eq!(judged, expected);
        let together = [&f32s(1.0)[..], &zero_point].concat();
        let judged = contents(block(0, 8, Some(1)), ElementType::Int4, &[&together]);
        assert_eq!(judged, expected);
    }
}

#[test]
fn decision_3_codes_with_padded_blocks_are_refused() {
    let int8 = ElementType::Int8;
    // 10 codes; 16 with every row filled up to two blocks of 4.
    assert_eq!(
        judge(int8, &[2, 5], block(1, 4, None), &[10, 16]),
        "accepted"
    );
    assert_eq!(
        judge(int8, &[2, 5], block(1, 4, None), &[15, 16]),
        "accepted"
    );
    assert_eq!(
        judge(int8, &[2, 5], block(1, 4, None), &[17, 16]),
        "accepted"
    );
    assert_eq!(
        judge(int8, &[2, 5], block(1, 4, None), &[16, 16]),
        "decision 3"
    );
    // Counted from the first element.
    let mut descriptor = tensor(int8, &[2, 5], block(1, 4, None).encode(), &[24, 16]);
    descriptor.byte_offset = 8;
    assert_eq!(rule(&descriptor), "decision 3");
    // Nor where the codes do not lie one after the other: one that is repeated three times.
    let mut repeated = tensor(int8, &[3], block(0, 2, None).encode(), &[4, 8]);
    repeated.layout = Layout::Strided([0].as_slice().into());
    assert_eq!(rule(&repeated), "accepted");
    // Where both sizes are one, there is nothing to tell apart: 3 two-bit codes in a byte.
    assert_eq!(
        judge(ElementType::Uint2, &[3], block(0, 2, None), &[1, 8]),
        "accepted"
    );
    assert_eq!(
        judge(ElementType::Uint4, &[12], nf4(8), &[8, 8]),
        "decision 3"
    );
}

fn paged(scheme: QuantizationScheme, parameters: u64) -> TensorDescriptor {
    let mut descriptor = tensor(
        ElementType::Int8,
        &[5, 2, 4],
        scheme.encode(),
        &[3 * 4 * 8, 12, 8, parameters],
    );
    descriptor.layout = Layout::BlockPaged(BlockPaged {
        page_size: 4,
        num_pages: 3,
        paged_axis: 0,
        num_seqs: 1,
        kv_role: KvRole::Key,
        layer_index: None,
        index_type: IndexType::Uint32,
    });
    descriptor
}

#[test]
fn p7_p8_p9_paged_tensors_are_quantized_by_their_pages() {
    let by_channel = |axis| {
        QuantizationScheme::ChannelAffine(ChannelAffine {
            axis,
            scale_buffer: 3,
            zero_point_buffer: None,
        })
    };
    let by_block = |axis, block_size| {
        QuantizationScheme::BlockAffine(BlockAffine {
            axis,
            block_size,
            scale_buffer: 3,
            zero_point_buffer: None,
            scale_type: ScaleType::Float32,
        })
    };
    let layout_rule = |descriptor: &TensorDescriptor| match descriptor.validate() {
        Err(Error::Descriptor(error)) => error.layout_rule().unwrap(),
        Err(error) => error.rule(),
        Ok(()) => "accepted",
    };
    assert_eq!(layout_rule(&paged(by_channel(1), 8)), "accepted");
    assert_eq!(layout_rule(&paged(by_channel(0), 20)), "P7");
    // One scale per slot of the pool, not per token.
    assert_eq!(layout_rule(&paged(by_block(0, 4), 3 * 4 * 4)), "accepted");
    assert_eq!(layout_rule(&paged(by_block(0, 4), 2 * 8 * 4)), "Q24");
    assert_eq!(layout_rule(&paged(by_block(0, 2), 3 * 4 * 4)), "P8");
    assert_eq!(layout_rule(&paged(by_block(2, 4), 3 * 4 * 4)), "P8");
    let mut unread = paged(by_channel(1), 8);
    unread.quantization = Some(QuantizationSection::from_bytes(b"garbage"));
    assert_eq!(layout_rule(&unread), "P9");
}

/// S18, decision 1: a scheme that cannot be read leaves a tensor that can be relayed, its own buffers checked.
#[test]
fn s18_a_scheme_that_cannot_be_read_is_relayed() {
    let sections: [&[u8]; 4] = [b"", b"garbage", &[0xF0, 1, 0, 0, 9], &[0x01, 1, 0, 0]];
    for section in sections {
        let section = QuantizationSection::from_bytes(section);
        assert!(section.scheme().is_err());
        for parameters in 0..3 {
            let mut sizes = vec![4];
            sizes.resize(1 + parameters, 7);
            let mut descriptor = tensor(ElementType::Float32, &[1], section.clone(), &sizes);
            assert_eq!(rule(&descriptor), "accepted");
            let own = descriptor.buffer_plan().unwrap();
            assert_eq!(own.len(), 1);
            assert_eq!(own[0].name, BufferName::Data);
            descriptor.buffers[0].byte_size = 3;
            assert_eq!(rule(&descriptor), "B4");
        }
    }
    let mut descriptor = tensor(
        ElementType::Float32,
        &[1],
        QuantizationSection::from_bytes(b"garbage"),
        &[4],
    );
    descriptor.layout = Layout::Csr { nnz: 1 };
    descriptor.shape = smallvec![1, 1];
    assert_eq!(rule(&descriptor), "B2");
}
