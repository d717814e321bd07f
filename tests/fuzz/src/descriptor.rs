//! Descriptors, and what follows the numbers in one that decodes.

use hurray_core::composite::assemble;
use hurray_core::{
    CombineOp, CompositeHead, CompositionRule, DYNAMIC, ElementAddress, Error, Layout, MemberRole,
    Shard, TensorDescriptor, validate_contents,
};

use crate::{Reached, numbers_of, within};

pub(crate) fn read(input: &[u8]) -> Reached {
    // The descriptor, two heads and members made of it, and a sort of the coordinates.
    within(16 * input.len() + 12 * 1024, || {
        let mut reached = Reached::default();
        follow(input, &mut reached);
        reached
    })
}

fn follow(input: &[u8], reached: &mut Reached) {
    let (descriptor, length) = match TensorDescriptor::decode(input) {
        Ok(decoded) => decoded,
        Err(error) => return reached.refused(error.rule(), &error),
    };
    reached.is_open = true;
    let (bytes, data) = input.split_at(length);
    check_codec(bytes, &descriptor);
    let is_valid = match descriptor.validate() {
        Ok(()) => {
            reached.items += 1;
            true
        }
        Err(error) => {
            reached.refused(error.rule(), &error);
            false
        }
    };
    check_sizes(&descriptor, is_valid);
    check_addresses(input, &descriptor, is_valid);
    if let Err(error) = validate_contents(&descriptor, &buffers(&descriptor, data)) {
        reached.refused(error.rule(), &error);
    }
    compose(&descriptor);
}

/// What was read is written with as many bytes, and read again the same.
fn check_codec(bytes: &[u8], descriptor: &TensorDescriptor) {
    let encoded = descriptor.encode().expect("what was read can be written");
    assert_eq!(encoded.len(), bytes.len());
    let (again, length) = TensorDescriptor::decode(&encoded).expect("what was written can be read");
    assert_eq!(length, encoded.len());
    // Equal as bytes: NaN bounds are no number.
    assert_eq!(again.encode().as_deref(), Ok(&*encoded));
}

fn check_sizes(descriptor: &TensorDescriptor, is_valid: bool) {
    let plan = descriptor.buffer_plan();
    if is_valid && !descriptor.layout.is_virtual() {
        for (planned, row) in plan
            .expect("a valid tensor has a plan")
            .iter()
            .zip(&descriptor.buffers)
        {
            assert!(planned.byte_size <= row.byte_size);
        }
    }
    let _ = descriptor.layout.validate(&descriptor.shape);
    let _ = descriptor.layout.extent(&descriptor.shape);
    if let Some(section) = &descriptor.quantization
        && let Ok(scheme) = section.scheme()
    {
        let _ = scheme.validate(descriptor.element_type, &descriptor.shape);
        let _ = scheme.parameter_count(&descriptor.shape, &descriptor.layout);
    }
}

/// An element of a valid dense tensor has an address in buffer 0, and nothing else has one.
fn check_addresses(input: &[u8], descriptor: &TensorDescriptor, is_valid: bool) {
    let mut rng = numbers_of(input);
    let shape = &descriptor.shape;
    let any: Vec<u64> = shape.iter().map(|_| rng.u64(..) >> rng.u32(..64)).collect();
    let inside: Vec<u64> = any
        .iter()
        .zip(shape)
        .map(|(&at, &dim)| at.checked_rem(dim).unwrap_or(0))
        .collect();
    let last: Vec<u64> = shape.iter().map(|dim| dim.saturating_sub(1)).collect();
    for index in [&any[..], &inside, &last, &any[..any.len() / 2]] {
        let address = descriptor.element_address(index);
        if is_valid && descriptor.layout.is_dense() && !shape.contains(&0) {
            let is_inside = index.len() == shape.len()
                && index
                    .iter()
                    .zip(shape)
                    .all(|(&at, &dim)| at < dim && dim != DYNAMIC);
            assert_eq!(address.is_ok(), is_inside, "{index:?}");
        }
        if let Ok(ElementAddress { byte, length, .. }) = address {
            assert!(byte + u64::from(length) <= descriptor.buffers[0].byte_size);
        }
    }
}

/// The bytes of each row, as far as there are any.
fn buffers<'a>(descriptor: &TensorDescriptor, data: &'a [u8]) -> Vec<&'a [u8]> {
    let mut rest = data;
    let rows = descriptor.buffers.iter();
    rows.map(|row| {
        let len = usize::try_from(row.byte_size).unwrap_or(usize::MAX);
        rest.split_off(..len.min(rest.len())).unwrap_or_default()
    })
    .collect()
}

/// As a head alone, and as members of the one head of each rule that could have it.
fn compose(descriptor: &TensorDescriptor) {
    let judge = |descriptors: &[&TensorDescriptor]| {
        if let Err(error) = assemble(descriptors.iter().copied()) {
            let error = Error::from(error);
            assert!(!error.rule().is_empty(), "{error}");
        }
    };
    judge(&[descriptor]);
    for rule in [
        CompositionRule::Partition,
        CompositionRule::Overlay(CombineOp::Add),
        CompositionRule::Group,
    ] {
        let mut head = descriptor.clone();
        head.layout = Layout::Composite(CompositeHead {
            rule,
            member_count: 2,
        });
        if let Some(shard) = &descriptor.shard {
            head.shape = shard.parent_shape.clone();
        }
        let mut member = descriptor.clone();
        member.member = matches!(rule, CompositionRule::Overlay(_)).then_some(MemberRole::Base);
        member.shard.get_or_insert_with(|| Shard {
            parent_shape: descriptor.shape.clone(),
            offset: descriptor.shape.iter().map(|_| 0).collect(),
        });
        judge(&[&head, descriptor, descriptor]);
        judge(&[&head, &member, &member]);
    }
}
