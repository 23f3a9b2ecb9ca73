//! The bytes of one entry, on disk and in a pack.
//!
//! ```text
//! warpsmith-cubin 2 {"key_bytes":…,"image_bytes":…,"about":{…}}\n   one line, so that `head -1` tells what it is
//! key text
//! image (ELF)
//! 32 bytes: BLAKE3 of all before
//! ```

use serde::{Deserialize, Serialize};

use super::key::{FORMAT_VERSION, Key};
use crate::build::{Cubin, Digest};

/// The most bytes of an entry: some hundred times the largest kernel.
pub(super) const MAX_BYTES: u64 = 64 << 20;

const MAGIC: &str = "warpsmith-cubin";
const TRAILER: usize = 32;

/// The JSON of the first line; borrowed when written, owned when read.
#[derive(Serialize, Deserialize)]
struct Header<A> {
    key_bytes: usize,
    image_bytes: usize,
    about: A,
}

/// An entry that was read and found whole.
pub(super) struct Entry {
    /// The text of the key it was stored under.
    pub key: Vec<u8>,
    pub cubin: Cubin,
}

/// The whole entry; the reason, if it is one that [`decode`] would refuse.
pub(super) fn encode(key: &Key, cubin: &Cubin) -> Result<Vec<u8>, String> {
    cubin.about().check_names().map_err(|error| error.to_string())?;
    let header = Header { key_bytes: key.text().len(), image_bytes: cubin.image().len(), about: cubin.about() };
    let header = serde_json::to_string(&header).map_err(|error| format!("header: {error}"))?;
    let mut bytes = format!("{MAGIC} {FORMAT_VERSION} {header}\n{}", key.text()).into_bytes();
    bytes.extend_from_slice(cubin.image());
    let digest = Digest::of(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("{} bytes, an entry has at most {MAX_BYTES}", bytes.len()));
    }
    Ok(bytes)
}

/// The entry, if every byte is as it was written; else the reason. Whose entry it is, the caller must compare.
pub(super) fn decode(bytes: &[u8]) -> Result<Entry, String> {
    let line_end = bytes.iter().position(|byte| *byte == b'\n').ok_or("torn: no header line")?;
    let line = std::str::from_utf8(&bytes[..line_end]).map_err(|_| "the header is not text")?;
    let rest = line.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(' ')).ok_or("wrong magic")?;
    let (version, header) = rest.split_once(' ').ok_or("no format version")?;
    if version != FORMAT_VERSION.to_string() {
        return Err(format!("format version {version:?}, this is {FORMAT_VERSION}"));
    }
    // The digest before anything of the header is believed.
    let (body, trailer) = bytes.split_at_checked(bytes.len().saturating_sub(TRAILER)).ok_or("torn: no digest")?;
    if Digest::of(body).as_bytes() != trailer {
        return Err(format!("damaged: {} bytes do not have the digest they end with", bytes.len()));
    }
    let header: Header<_> = serde_json::from_str(header).map_err(|error| format!("header: {error}"))?;
    let rest = body.get(line_end + 1..).ok_or("torn: nothing after the header")?;
    let (key, image) = rest.split_at_checked(header.key_bytes).ok_or("the key is shorter than the header says")?;
    if image.len() != header.image_bytes {
        return Err(format!("the image has {} bytes, the header says {}", image.len(), header.image_bytes));
    }
    let cubin = Cubin::from_parts(header.about, image.to_vec()).map_err(|error| error.to_string())?;
    Ok(Entry { key: key.to_vec(), cubin })
}

/// The cubin, if the entry is whole and that of `key`.
pub(super) fn decode_of(key: &Key, bytes: &[u8]) -> Result<Cubin, String> {
    let entry = decode(bytes)?;
    if entry.key != key.text().as_bytes() {
        return Err("the entry is of another key".to_owned());
    }
    Ok(entry.cubin)
}
