//! The errors of a session. None of them contains an id of the store.

use crate::error::Error;

/// Makes the refusals, each with its number and with what is said of it.
macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why something was refused.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $name = $number,)*
        }

        impl Refusal {
            /// The refusal with this number.
            pub(super) fn from_u8(value: u8) -> Option<Refusal> {
                match value {
                    $($number => Some(Refusal::$name),)*
                    _ => None,
                }
            }

            fn text(self) -> &'static str {
                match self {
                    $(Refusal::$name => $text,)*
                }
            }
        }
    };
}

refusals! {
    /// The session was closed, or was idle for too long.
    Ended = 1, "the session has ended; open another one";
    /// The session has not handed out this id, or its node is gone.
    NoSuchId = 2, "this session has no such id, or its node is gone; get it again by an edge";
    /// A change needs a transaction.
    NoTransaction = 3, "a change takes a transaction; begin one";
    /// There is a transaction already.
    InTransaction = 4, "there is a transaction; commit or abort it first";
    /// The session holds as many ids as it may.
    TooManyIds = 5, "the session holds the most ids it may; forget some, or open another one";
    /// There is no such node, or the caller may not know.
    NoSuchNode = 6, "there is no such node, or it is not yours to know";
    /// The node has another type.
    WrongType = 7, "the node has another type";
    /// The node or the edge type has edges, or the s-node has nodes.
    NotEmpty = 8, "it still has edges or nodes; delete them first";
    /// There is such an edge already.
    EdgeExists = 9, "there is such an edge already; delete it first or replace it";
    /// There is no such edge.
    NoSuchEdge = 10, "there is no such edge";
    /// The caller has no permission.
    Forbidden = 11, "no permission";
    /// Another transaction is in the way: abort this one and run it again.
    Deadlock = 12, "another transaction is in the way: abort this one and run it again";
    /// What was given cannot be.
    BadRequest = 13, "the request cannot be";
    /// No room is left.
    Full = 14, "no room is left; commit in smaller steps, or delete something";
    /// The store has a fault.
    Fault = 15, "the store has a fault; whoever runs it finds it in its log";
    /// The server cannot be reached, or has too many clients.
    Connection = 16, "the server cannot be reached; see that it runs, and connect again";
    /// The transaction took longer than a session's may, and was aborted.
    TransactionEnded = 17, "the transaction took too long and was aborted; begin another one";
}

/// What is said of a state that is no longer there.
pub(super) const LOST: &str =
    "more has changed since this transaction began to read than is kept for it; abort it and run it again";

/// Something that a session has refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct SessionError {
    /// Why.
    pub refusal: Refusal,
    pub(super) text: String,
}

impl SessionError {
    pub(super) fn new(refusal: Refusal, text: impl Into<String>) -> SessionError {
        SessionError { refusal, text: text.into() }
    }
}

/// Refuses what follows from what is no longer so.
pub(super) fn changed() -> SessionError {
    let text = "others have changed what this transaction has read; abort it and run it again";
    SessionError::new(Refusal::Deadlock, text)
}

impl From<Refusal> for SessionError {
    fn from(refusal: Refusal) -> SessionError {
        SessionError::new(refusal, refusal.text())
    }
}

impl From<Error> for SessionError {
    fn from(error: Error) -> SessionError {
        let say = |refusal, text: &str| SessionError::new(refusal, text);
        match error {
            Error::NoSuchNode(_) | Error::NoSuchSnode(_) => Refusal::NoSuchNode.into(),
            Error::WrongType { found, wanted, .. } => {
                say(Refusal::WrongType, &format!("the node has type {found:#x}, not {wanted:#x}"))
            }
            Error::HasEdges(_) | Error::SnodeNotEmpty(_) | Error::EdgeTypeInUse { .. } => {
                Refusal::NotEmpty.into()
            }
            Error::EdgeExists(_) => Refusal::EdgeExists.into(),
            Error::NoSuchEdge(_) => Refusal::NoSuchEdge.into(),
            Error::Forbidden { needed, .. } => {
                let text = format!("no permission to {} there; its owner can grant it", needed.name());
                say(Refusal::Forbidden, &text)
            }
            Error::Deadlock(_) | Error::WaitsForItself(_) | Error::LockTimeout { .. } => {
                Refusal::Deadlock.into()
            }
            Error::SnapshotLost { .. } => say(Refusal::Deadlock, LOST),
            Error::NotARoot(_) => say(
                Refusal::Forbidden,
                "the destination is in another s-node; lead the edge to the root of that s-node",
            ),
            Error::Full { .. } | Error::CacheFull { .. } | Error::NotRecovered { .. } => Refusal::Full.into(),
            Error::KeyNotInNode(_) => say(
                Refusal::BadRequest,
                "the destination's type has no keys, or its data does not begin with the edge's key",
            ),
            Error::OtherSnode(_) => say(Refusal::BadRequest, "edges by key stay in one s-node"),
            Error::TooManyTypes { max, .. } => {
                let text = format!("the node has edges of {max} types already, which is the most");
                say(Refusal::BadRequest, &text)
            }
            plain @ (Error::NoSuchEdgeType(_)
            | Error::WrongInfo { .. }
            | Error::TypeTaken(_)
            | Error::ReservedName(_)
            | Error::FirstSnode
            | Error::RootType
            | Error::TooLarge { .. }
            | Error::BadOption { .. }
            | Error::NoSuchSavepoint) => say(Refusal::BadRequest, &plain.to_string()),
            fault => {
                tracing::error!(error = %fault, "the store failed a session");
                Refusal::Fault.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_comes_back_from_its_number() {
        for value in 0..=255 {
            let found = Refusal::from_u8(value);
            assert_eq!(found.is_some(), (1..=17).contains(&value));
            assert!(found.is_none_or(|refusal| refusal as u8 == value && !refusal.text().is_empty()));
        }
    }
}
