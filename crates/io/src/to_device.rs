//! Bytes of a file into the memory of a device: read into pinned chunks, and copied from there while others are read.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use hurray_core::{CopyRequest, DeviceLayer, MemoryClass, StagingRing, Stream};
use hurray_ffi::{Buffer, Item, OrderError, Place, device};

use crate::FileError;
use crate::file_bytes::{into_chunk, is_too_much_to_cache};
use crate::parallel;
use crate::progress::Progress;
use crate::source::{Source, len, total};

/// Each has a ring of chunks. A few fill the link: one reads a few gigabytes a second from the page cache.
const MOST_THREADS: usize = 4;
/// A gap between two buffers that is rather read with them than stepped over.
const WIDEST_GAP: u64 = 64 << 10;

/// Buffers of a device that are to be filled from a file, in the file's ranges, on one stream.
pub(crate) struct ToDevice {
    layer: &'static dyn DeviceLayer,
    place: Place,
    stream: Stream,
    ring: Box<dyn StagingRing>,
    ranges: Vec<Range<u64>>,
    addresses: Vec<usize>,
}

impl ToDevice {
    /// Memory for `ranges` at `place`; nothing of it may be handed out yet.
    pub(crate) fn allocate(
        place: Place,
        ranges: Vec<Range<u64>>,
    ) -> Result<(Self, Vec<Buffer>), FileError> {
        let layer = device::reaching(place)?;
        let ring = layer.staging_ring(place.device_id)?;
        let stream = ring.stream().clone();
        let buffers: Result<Vec<_>, FileError> = ranges
            .iter()
            .map(|range| Ok(Buffer::allocate(place, len(range)?, false, &stream)?))
            .collect();
        let buffers = buffers?;
        let addresses = buffers.iter().map(|buffer| buffer.as_ptr().addr());
        let this = Self {
            layer,
            place,
            stream,
            ring,
            addresses: addresses.collect(),
            ranges,
        };
        Ok((this, buffers))
    }

    /// Queues everything that fills the buffers, which are those of `items`, in order. Each item comes back in mode `event`, as soon as its own bytes
    /// are queued: it can be used before the rest is there.
    pub(crate) fn fill(
        self,
        source: &Source,
        items: Vec<Item>,
        progress: &mut Progress<'_>,
    ) -> Result<Vec<Item>, FileError> {
        let Self {
            layer,
            place,
            stream,
            ring,
            ranges,
            addresses,
        } = self;
        // Memory that the host reaches is no stream's until it is lent to one.
        let lent: Result<Vec<_>, _> = items
            .iter()
            .filter(|_| place.memory_class != MemoryClass::Standard)
            .map(|item| item.order(&stream))
            .collect();
        let lent = lent?;
        let chunk_len = ring.chunk_len();
        let mut pieces = Vec::new();
        let mut buffers = ranges.iter().zip(addresses);
        for (number, item) in items.iter().enumerate() {
            for (range, address) in buffers.by_ref().take(buffer_count(item)) {
                cut(range, address, number, chunk_len, &mut pieces);
            }
        }
        pieces.sort_by_key(|piece| piece.range.start);
        let arrivals = Arrivals::new(&stream, items, &pieces);
        let total = total(&ranges);
        let is_direct = is_too_much_to_cache(total);
        let device_id = (place.memory_class == MemoryClass::Standard).then_some(place.device_id);
        let ring = Mutex::new(Some(ring));
        parallel::for_each(
            grouped(&pieces, chunk_len).into_iter(),
            total,
            MOST_THREADS,
            || {
                let first = ring.lock().unwrap_or_else(PoisonError::into_inner).take();
                let ring = first.map_or_else(|| layer.staging_ring(place.device_id), Ok);
                Ok(ring?)
            },
            |ring, group| {
                let chunk = ring.chunk()?;
                let read = source.read_chunk(chunk, &span(group), is_direct);
                let bytes = chunk.as_mut_ptr().expose_provenance();
                if let Err(error) = read {
                    ring.advance(None)?;
                    return Err(error);
                }
                let copies: Vec<_> = copies(group, bytes, device_id).collect();
                // SAFETY: the chunk is left alone until its copies are done, which `advance` sees to. The targets are parts of buffers that this
                // value allocated, that `arrivals` keeps alive, and that nobody else knows; they are allocated on the stream or lent to it.
                let copied = unsafe { layer.copy(&copies, &stream) };
                ring.advance(Some(&stream))?;
                copied?;
                for piece in group {
                    arrivals.queued(piece)?;
                }
                Ok(group.iter().map(Piece::len).sum())
            },
            progress,
        )?;
        drop(lent);
        Ok(arrivals.finish()?)
    }
}

/// Items whose pieces are being queued on a stream.
struct Arrivals<'s> {
    stream: &'s Stream,
    items: Vec<Arrival>,
}

struct Arrival {
    item: Item,
    /// Pieces that are not queued yet.
    missing: AtomicUsize,
    recorded: OnceLock<Item>,
}

impl<'s> Arrivals<'s> {
    fn new(stream: &'s Stream, items: Vec<Item>, pieces: &[Piece]) -> Self {
        let items = items.into_iter().map(|item| Arrival {
            item,
            missing: AtomicUsize::new(0),
            recorded: OnceLock::new(),
        });
        let arrivals = Self {
            stream,
            items: items.collect(),
        };
        for piece in pieces {
            if let Some(arrival) = arrivals.items.get(piece.item) {
                arrival.missing.fetch_add(1, Ordering::Relaxed);
            }
        }
        arrivals
    }

    /// Notes that a piece is queued. Whoever queues an item's last records it: by then all others have queued theirs.
    fn queued(&self, piece: &Piece) -> Result<(), OrderError> {
        if let Some(arrival) = self.items.get(piece.item)
            && arrival.missing.fetch_sub(1, Ordering::AcqRel) == 1
        {
            // Nobody else comes last.
            let _: Result<(), _> = arrival.recorded.set(arrival.item.record(self.stream)?);
        }
        Ok(())
    }

    /// The items, when all pieces are queued; those without a byte are recorded only now.
    fn finish(self) -> Result<Vec<Item>, OrderError> {
        let items = self.items.into_iter();
        items
            .map(|arrival| match arrival.recorded.into_inner() {
                Some(recorded) => Ok(recorded),
                None => arrival.item.record(self.stream),
            })
            .collect()
    }
}

fn buffer_count(item: &Item) -> usize {
    match item {
        Item::Tensor(tensor) => tensor.buffers().len(),
        Item::Composite(composite) => composite.members().iter().map(buffer_count).sum(),
    }
}

/// A part of a buffer that fits a chunk.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    range: Range<u64>,
    address: usize,
    item: usize,
}

impl Piece {
    fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }
}

/// Cuts a buffer into pieces that fit a chunk, wherever in a [`DIRECT_ALIGNMENT`](crate::file_bytes::DIRECT_ALIGNMENT) it begins.
fn cut(range: &Range<u64>, address: usize, item: usize, chunk_len: usize, into: &mut Vec<Piece>) {
    let mut start = range.start;
    while start < range.end {
        let room = chunk_len.saturating_sub(into_chunk(start)).max(1) as u64;
        let end = range.end.min(start.saturating_add(room));
        let skipped = start.saturating_sub(range.start) as usize;
        into.push(Piece {
            range: start..end,
            address: address.saturating_add(skipped),
            item,
        });
        start = end;
    }
}

/// Puts neighbours together that one chunk holds with what is between them.
fn grouped(pieces: &[Piece], chunk_len: usize) -> Vec<&[Piece]> {
    let mut groups = Vec::new();
    let mut rest = pieces;
    while let Some(first) = rest.first() {
        let begin = first
            .range
            .start
            .saturating_sub(into_chunk(first.range.start) as u64);
        let mut end = first.range.end;
        let fits = |piece: &&Piece| {
            let gap = piece.range.start.saturating_sub(end);
            let span = piece.range.end.saturating_sub(begin);
            end = piece.range.end;
            gap <= WIDEST_GAP && span <= chunk_len as u64
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (group, others) = rest.split_at(count.min(rest.len()));
        groups.push(group);
        rest = others;
    }
    groups
}

/// The bytes of the file that a group takes.
fn span(group: &[Piece]) -> Range<u64> {
    let start = group.first().map_or(0, |piece| piece.range.start);
    let ends = group.iter().map(|piece| piece.range.end);
    start..ends.max().unwrap_or(start)
}

/// The copies of a group from the chunk at `chunk`.
fn copies(
    group: &[Piece],
    chunk: usize,
    device_id: Option<u32>,
) -> impl Iterator<Item = CopyRequest> {
    let start = span(group).start;
    group.iter().map(move |piece| {
        let offset = piece.range.start.saturating_sub(start) as usize;
        let from = chunk
            .saturating_add(into_chunk(start))
            .saturating_add(offset);
        let len = piece.len() as usize;
        CopyRequest::contiguous((from, None), (piece.address, device_id), len)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: usize = 1 << 16;

    proptest! {
        /// Every byte of every buffer is copied once, from where it is in the chunk, and a chunk holds what its group takes.
        #[test]
        fn groups_fit_chunks_and_copy_every_byte_once(
            buffers in prop::collection::vec((0_u64..300_000, 0_u64..200_000), 1..20),
        ) {
            let mut start = 0;
            let mut pieces = Vec::new();
            let mut ranges = Vec::new();
            for (number, (gap, len)) in buffers.into_iter().enumerate() {
                start += gap;
                let range = start..start + len;
                // Addresses that tell the buffer.
                cut(&range, number << 32, number, CHUNK, &mut pieces);
                ranges.push(range);
                start += len;
            }
            let mut copied = vec![0; ranges.len()];
            for group in grouped(&pieces, CHUNK) {
                let span = span(group);
                prop_assert!(into_chunk(span.start) as u64 + (span.end - span.start) <= CHUNK as u64);
                for copy in copies(group, 0, Some(0)) {
                    let number = copy.to.address >> 32;
                    let offset = copy.to.address & 0xFFFF_FFFF;
                    // In order, without a gap.
                    prop_assert_eq!(offset as u64, copied[number]);
                    copied[number] += copy.row_len as u64;
                    let in_file = ranges[number].start + offset as u64;
                    let in_chunk = span.start - into_chunk(span.start) as u64 + copy.from.address as u64;
                    prop_assert_eq!(in_file, in_chunk);
                }
            }
            let lens = ranges.iter().map(|range| range.end - range.start);
            prop_assert!(lens.eq(copied));
        }
    }

    #[test]
    fn small_neighbours_share_a_chunk_and_distant_ones_do_not() {
        let mut pieces = Vec::new();
        for start in [0, 4096, 8192, 8192 + 4096 + WIDEST_GAP + 1] {
            cut(&(start..start + 100), 0, 0, 4 << 20, &mut pieces);
        }
        let groups = grouped(&pieces, 4 << 20);
        let counts: Vec<_> = groups.iter().map(|group| group.len()).collect();
        assert_eq!(counts, [3, 1]);
    }
}
