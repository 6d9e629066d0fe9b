//! How far a write-ahead log that an earlier process left can be read.
//!
//! SQLite reads it up to the first frame whose checksum does not fit, and takes what follows for none. After a loss of power
//! that is right: behind what was confirmed, anything may stand. Where a byte of the middle changed on the disk, what was
//! confirmed goes the same way, and nobody would say so. The form is that of <https://sqlite.org/fileformat2.html#walformat>, read
//! on 2026-11-27.

use std::{
    fs::File,
    io::{BufReader, ErrorKind, Read},
    path::Path,
};

use crate::{StoreError, open::beside};

const HEADER: usize = 32;
const FRAME: usize = 24;
/// Without the bit that says in which order the checksums read numbers.
const MAGIC: u32 = 0x377f_0682;

/// Whether a transaction of the log's present round ends behind the first frame that does not fit, or the log itself is none.
pub(crate) fn is_unread(path: &Path) -> Result<bool, StoreError> {
    let mut log = match File::open(beside(path, "-wal")) {
        Ok(log) => BufReader::new(log),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let mut header = [0; HEADER];
    if !fill(&mut log, &mut header)? {
        return Ok(false);
    }
    let magic = number(&header, 0);
    let mut sum = Checksum { big: magic & 1 == 1, state: [0; 2] };
    sum.add(&header[..24]);
    let page = number(&header, 8);
    if magic & !1 != MAGIC || !(512..=65_536).contains(&page) || !sum.is(&header, 24) {
        // One that was cut back keeps nothing; what it held is in the file.
        return Ok(header != [0; HEADER]);
    }
    let mut frame = vec![0; FRAME + page as usize];
    let mut fits = true;
    while fill(&mut log, &mut frame)? {
        // Those of an earlier round bear another salt.
        let of_this_round = frame[8..16] == header[16..24];
        if fits {
            sum.add(&frame[..8]);
            sum.add(&frame[FRAME..]);
            fits = of_this_round && sum.is(&frame, 16);
        }
        // The last frame of each transaction bears the size of the database. One that was given up has none.
        if !fits && of_this_round && number(&frame, 4) != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads all of it; false where there is less.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> Result<bool, StoreError> {
    match from.read_exact(bytes) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => Ok(read.map(|()| true)?),
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// The sum over the header and all frames so far.
struct Checksum {
    big: bool,
    state: [u32; 2],
}

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        let [mut one, mut two] = self.state;
        let (pairs, _) = bytes.as_chunks::<8>();
        for [a, b, c, d, e, f, g, h] in pairs {
            let (first, second) = match self.big {
                true => (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h])),
                false => (u32::from_le_bytes([*a, *b, *c, *d]), u32::from_le_bytes([*e, *f, *g, *h])),
            };
            one = one.wrapping_add(first).wrapping_add(two);
            two = two.wrapping_add(second).wrapping_add(one);
        }
        self.state = [one, two];
    }

    fn is(&self, bytes: &[u8], at: usize) -> bool {
        self.state == [number(bytes, at), number(bytes, at + 4)]
    }
}
