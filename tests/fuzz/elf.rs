//! What an image says of itself, read a second time and by other code: byte for byte, as the ELF format has it.

/// The kernels of a 64-bit ELF file for CUDA whose tables, sections and segments lie within it; none if it is no such file.
pub fn kernels(image: &[u8]) -> Option<Vec<String>> {
    if image.get(..6)? != b"\x7fELF\x02\x01" || number(image, 0x12, 2)? != 190 {
        return None;
    }
    // Of segments where they begin and what they have in the file, of sections their type, too.
    for header in table(image, 0x20, 0x36, 0x38)? {
        within(image, number(header, 8, 8)?, number(header, 32, 8)?)?;
    }
    let sections = table(image, 0x28, 0x3a, 0x3c)?;
    let bytes_of = |header: &[u8]| within(image, number(header, 24, 8)?, number(header, 32, 8)?);
    let mut found = Vec::new();
    for header in &sections {
        match number(header, 4, 4)? {
            // None, and one that is zeros.
            0 | 8 => continue,
            2 => {}
            _ => {
                bytes_of(header)?;
                continue;
            }
        }
        let names = bytes_of(sections.get(usize::try_from(number(header, 40, 4)?).ok()?)?)?;
        for symbol in bytes_of(header)?.chunks_exact(24).filter(|symbol| symbol[5] & 0x10 != 0) {
            let name = names.get(usize::try_from(number(symbol, 0, 4)?).ok()?..).unwrap_or_default();
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
            found.push(String::from_utf8_lossy(&name[..end]).into_owned());
        }
    }
    Some(found)
}

/// The headers of a table: where it begins, the size of one, and how many there are, are at these places.
fn table(image: &[u8], at: usize, size: usize, count: usize) -> Option<Vec<&[u8]>> {
    let (size, count) = (number(image, size, 2)?, number(image, count, 2)?);
    if count == 0 {
        return Some(Vec::new());
    }
    let bytes = within(image, number(image, at, 8)?, size * count)?;
    Some(bytes.chunks_exact(usize::try_from(size).ok()?.max(1)).collect())
}

fn within(image: &[u8], at: u64, bytes: u64) -> Option<&[u8]> {
    image.get(usize::try_from(at).ok()?..usize::try_from(at.checked_add(bytes)?).ok()?)
}

/// The number of so many bytes at this place.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
