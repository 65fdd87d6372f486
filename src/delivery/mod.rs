//! One request: what is signed, where it may go, how it is sent, and what came of it.
//!
//! [`sign`] makes the signature over the bytes that are sent. [`send`] has one clock over the whole request:
//! [`resolve`] looks the name up, [`address`] judges every address found, `connect` dials, the answer's head
//! decides, at most 16 KiB of its body are read, and [`wait`] reads how long the answer asks to be left alone. [`outcome`]
//! names what can go wrong.

pub mod address;
mod answer;
mod carried;
mod connect;
mod failure;
mod leave;
pub mod outcome;
pub mod resolve;
pub mod send;
pub mod sign;
pub mod wait;

pub use address::AddressGuard;
pub use outcome::{Answer, ErrorCode, NotSent};
pub use resolve::Resolver;
pub use send::{Request, Sender};
pub use sign::{Secret, Style, signature};
