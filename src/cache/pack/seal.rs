//! The trailer: where the index is, its digest, and the signature over both.
//!
//! ```text
//! 0    u64 LE   where the index begins
//! 8    u64 LE   its bytes
//! 16   32       its BLAKE3 digest
//! 48   64       ed25519 signature of MESSAGE and the 48 bytes before; zeros if there is none
//! 112  u64 LE   1 if there is a signature, else 0
//! 120  8        END
//! ```

use crate::build::Digest;
use crate::{Error, Result};

/// The half of an ed25519 key that a signature is verified with.
pub(super) type Key = [u8; 32];

pub(super) const TRAILER_BYTES: u64 = 128;
const END: &[u8; 8] = b"wspack1\n";
/// What a signature begins with, so that it is good for nothing else.
#[cfg(feature = "signed-packs")]
const MESSAGE: &[u8] = b"warpsmith-pack 1 index\n";

pub(super) struct Trailer {
    pub index_at: u64,
    pub index_bytes: u64,
    digest: [u8; 32],
    pub signature: Option<[u8; 64]>,
}

impl Trailer {
    /// Of an index at `at`, without a signature.
    pub fn of(index: &[u8], at: u64) -> Self {
        let digest = *Digest::of(index).as_bytes();
        Self { index_at: at, index_bytes: index.len() as u64, digest, signature: None }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.signed_part();
        bytes.extend_from_slice(&self.signature.unwrap_or([0; 64]));
        bytes.extend_from_slice(&u64::from(self.signature.is_some()).to_le_bytes());
        bytes.extend_from_slice(END);
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let parts = || {
            let (index_at, rest) = bytes.split_first_chunk()?;
            let (index_bytes, rest) = rest.split_first_chunk()?;
            let (digest, rest) = rest.split_first_chunk()?;
            let (signature, rest) = rest.split_first_chunk()?;
            let (flag, end) = rest.split_first_chunk()?;
            Some((index_at, index_bytes, digest, signature, u64::from_le_bytes(*flag), end))
        };
        let Some((index_at, index_bytes, digest, signature, flag, end)) = parts() else {
            return Err(Error::internal("a trailer of another size"));
        };
        if end != END {
            return Err(Error::data("cut short or not a pack: it does not end as one does"));
        }
        let signature = match flag {
            0 if *signature == [0; 64] => None,
            1 => Some(*signature),
            _ => return Err(Error::data("damaged: the trailer")),
        };
        Ok(Self {
            index_at: u64::from_le_bytes(*index_at),
            index_bytes: u64::from_le_bytes(*index_bytes),
            digest: *digest,
            signature,
        })
    }

    /// Whether these are the bytes of the index.
    pub fn check(&self, index: &[u8]) -> Result<()> {
        if *Digest::of(index).as_bytes() != self.digest {
            return Err(Error::data(format!("damaged: the index of {} bytes does not have its digest", index.len())));
        }
        Ok(())
    }

    fn signed_part(&self) -> Vec<u8> {
        let mut bytes = self.index_at.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.index_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.digest);
        bytes
    }
}

#[cfg(feature = "signed-packs")]
impl Trailer {
    /// With a signature by this secret key.
    pub fn sign(&mut self, secret: &[u8; 32]) {
        use ed25519_dalek::{Signer, SigningKey};
        let message = [MESSAGE, &self.signed_part()].concat();
        self.signature = Some(SigningKey::from_bytes(secret).sign(&message).to_bytes());
    }

    /// Whether the holder of this key has signed it.
    pub fn verify(&self, signer: &Key) -> Result<()> {
        use ed25519_dalek::{Signature, VerifyingKey};
        let wrong =
            |why: &str| Error::untrusted(format!("{why}; it must be signed by the ed25519 key {}", hex(signer)));
        let signature = self.signature.ok_or_else(|| wrong("the pack is not signed"))?;
        let key = VerifyingKey::from_bytes(signer)
            .map_err(|error| wrong("the key is not one of ed25519").with_source(error))?;
        let message = [MESSAGE, &self.signed_part()].concat();
        key.verify_strict(&message, &Signature::from_bytes(&signature))
            .map_err(|error| wrong("the pack's signature is not by this key").with_source(error))
    }
}

/// The half of an ed25519 key that everyone may know.
#[cfg(feature = "signed-packs")]
pub(super) fn public_half(secret: &[u8; 32]) -> Key {
    ed25519_dalek::SigningKey::from_bytes(secret).verifying_key().to_bytes()
}

#[cfg(feature = "signed-packs")]
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(not(feature = "signed-packs"))]
impl Trailer {
    /// Never asked without the feature; nothing can be verified then.
    pub fn verify(&self, _: &Key) -> Result<()> {
        Err(Error::untrusted("built without the feature signed-packs: no signature can be verified"))
    }
}
