//! For which machine a library was built, as its header says.

use std::{fs::File, io::Read, path::Path};

/// What this program runs on, in the numbers of [`name`].
#[cfg(target_arch = "x86_64")]
const OWN: u16 = 62;
#[cfg(target_arch = "aarch64")]
const OWN: u16 = 183;

/// Of 64 bits, and the lower byte first, as both of the above are.
const CLASS_AND_ORDER: [u8; 2] = [2, 1];

/// Why the file can never be opened on this machine; none where that is not the reason.
pub fn foreign(path: &Path) -> Option<String> {
    let mut header = [0; 20];
    File::open(path).and_then(|mut file| file.read_exact(&mut header)).ok()?;
    told(&header)
}

fn told(header: &[u8; 20]) -> Option<String> {
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    let machine = u16::from_le_bytes([header[18], header[19]]);
    if header[4..6] != CLASS_AND_ORDER {
        return Some(format!("it was not built for 64 bits in the byte order of {}", name(OWN)));
    }
    (machine != OWN).then(|| format!("it was built for {}, and this machine is {}", name(machine), name(OWN)))
}

/// What people call a machine; the numbers are those of the header's field (`EM_…` in `elf.h`).
fn name(machine: u16) -> String {
    match machine {
        21 => "64-bit PowerPC".into(),
        22 => "IBM S/390".into(),
        62 => "x86-64".into(),
        183 => "AArch64".into(),
        243 => "RISC-V".into(),
        other => format!("machine {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_for_another_machine_is_told_from_one_that_is_broken() {
        let mut header = [0; 20];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut with = |machine: u16| {
            header[18..].copy_from_slice(&machine.to_le_bytes());
            told(&header)
        };
        assert_eq!(with(OWN), None);
        assert!(
            with(243).is_some_and(|told| told.starts_with("it was built for RISC-V, and this machine is "))
        );
        assert!(with(9999).is_some_and(|told| told.contains("machine 9999")));
        header[4] = 1;
        assert!(told(&header).is_some_and(|told| told.contains("not built for 64 bits")));
        assert_eq!(told(&[0; 20]), None);
        assert_eq!(foreign(Path::new("/does/not/exist")), None);
    }
}
