//! The edges of one type out of a node, in an order of their own.
//!
//! The order is that of the hashes of their infos, by the store's secret: that in which a bundle has them, so that a part of a long list
//! costs what the part does. An edge keeps its place as long as it is there, whatever comes and goes around it, also when the store
//! is opened anew. So whoever goes through a list by parts sees each edge that was there all the time once.

use super::{Bundle, Edge, EdgeChange, EdgeTable, RawEdge};
use crate::error::{Result, Step};
use crate::hash::Secret;
use crate::ids::{EdgeType, InfoForm, NodeId};
use crate::pages::access::Pages;
use std::ops::RangeInclusive;

/// A place in the order of a node's edges of one type: before an edge, or behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgePlace(u128);

/// Which way what has an order is gone through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From the first on.
    Up,
    /// From the last on.
    Down,
}

/// An edge and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedEdge {
    /// The place before it.
    pub place: EdgePlace,
    /// Edge that was found.
    pub edge: Edge,
}

/// Edges in their order, and the place from which on there are others.
pub(crate) struct Part {
    pub edges: Vec<(EdgePlace, RawEdge)>,
    pub rest: Option<EdgePlace>,
}

impl EdgePlace {
    /// Before all edges.
    pub const FIRST: EdgePlace = EdgePlace(0);
    /// Behind all edges.
    pub const LAST: EdgePlace = EdgePlace(u128::MAX);

    /// The place as two words, to be kept: it holds as long as the store.
    pub fn to_words(self) -> [u64; 2] {
        [(self.0 >> 64) as u64, self.0 as u64]
    }

    /// The place of two words.
    pub fn from_words([upper, lower]: [u64; 2]) -> EdgePlace {
        EdgePlace(u128::from(upper) << 64 | u128::from(lower))
    }

    /// The upper half, by which changes are kept in order.
    pub(crate) fn word(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The place of an edge, by the hash of its info; of edges with one hash, by what else tells them apart.
    pub(crate) fn of(form: InfoForm, secret: Secret, key: u64, to: NodeId) -> EdgePlace {
        EdgePlace::from_words(match form {
            InfoForm::Number => [secret.number(key), key],
            InfoForm::Key => [key, to.0],
        })
    }

    /// The upper bits, which the directory of a table knows.
    fn upper(self) -> u32 {
        (self.0 >> 96) as u32
    }

    fn at_upper(upper: u32) -> EdgePlace {
        EdgePlace(u128::from(upper) << 96)
    }
}

impl PlacedEdge {
    /// The place behind the edge.
    pub fn behind(&self) -> EdgePlace {
        EdgePlace(self.place.0.saturating_add(1))
    }
}

impl EdgeTable {
    /// The edges of a page of a bundle, or all that lie in the main table, in their order from a place on.
    pub(crate) fn part(
        &self,
        pages: &impl Pages,
        (source, etype): (NodeId, EdgeType),
        form: InfoForm,
        from: EdgePlace,
        direction: Direction,
    ) -> Step<Part> {
        let place = |edge: RawEdge| (EdgePlace::of(form, self.main.secret, edge.key, edge.to), edge);
        let bundle = self.bundle(pages, source, etype)?.and_then(|id| self.bundles.get(&id));
        let (mut edges, rest): (Vec<_>, _) = match bundle {
            None => {
                let all = self.heads_of(pages, source)?.edges.into_iter();
                (all.filter(|edge| edge.etype == etype).map(place).collect(), None)
            }
            Some(bundle) => {
                let mut edges = Vec::new();
                let (own, rest) = bundle.pages_at(from, direction);
                for page in own {
                    edges.extend(Self::edges_in(pages, etype, page)?.into_iter().map(place));
                }
                (edges, rest)
            }
        };
        match direction {
            Direction::Up => edges.retain(|(place, _)| *place >= from),
            Direction::Down => edges.retain(|(place, _)| *place < from),
        }
        sort(&mut edges, direction);
        Ok(Part { edges, rest })
    }
}

impl Bundle {
    /// The pages with the cells behind a place, or before it, and the place from which further ones have them.
    fn pages_at(&self, from: EdgePlace, direction: Direction) -> (Vec<u32>, Option<EdgePlace>) {
        let at = match direction {
            Direction::Up => from,
            Direction::Down => EdgePlace(from.0.saturating_sub(1)),
        };
        let Some((last, page)) = self.directory.until(at.upper()) else { return (Vec::new(), None) };
        let rest = match direction {
            Direction::Up => last.checked_add(1),
            Direction::Down => Some(self.directory.first_of(last)).filter(|first| *first > 0),
        };
        (self.directory.chain(page).collect(), rest.map(EdgePlace::at_upper))
    }
}

fn sort(edges: &mut [(EdgePlace, RawEdge)], direction: Direction) {
    edges.sort_unstable_by_key(|(place, _)| *place);
    if direction == Direction::Down {
        edges.reverse();
    }
}

/// Up to `max` edges from a place on, in a committed state with changes over it. `changes` gives those of this type and source whose
/// places begin with one of a range of words, in the order of these.
pub(crate) fn list<'c, I: DoubleEndedIterator<Item = (u64, &'c EdgeChange)>>(
    (etype, form, secret): (EdgeType, InfoForm, Secret),
    mut from: EdgePlace,
    direction: Direction,
    max: usize,
    changes: impl Fn(RangeInclusive<u64>) -> I,
    mut part: impl FnMut(EdgePlace) -> Result<Part>,
) -> Result<Vec<PlacedEdge>> {
    // A changed edge is known by its committed destination: two edges with one hash differ in that.
    let is_gone = |(place, edge): &(EdgePlace, RawEdge)| {
        let word = place.word();
        changes(word..=word).any(|(_, change)| (change.key, change.old) == (edge.key, edge.to))
    };
    let mut found: Vec<PlacedEdge> = Vec::new();
    loop {
        let Part { edges, rest } = part(from)?;
        let more = max - found.len();
        let mut edges: Vec<_> = edges.into_iter().filter(|edge| !is_gone(edge)).take(more).collect();
        // Nothing is wanted behind the last of as many as there is room for.
        let last = edges.last().filter(|_| edges.len() == more).map(|(place, _)| *place);
        let end = last.or(rest).map(EdgePlace::word);
        let changed = match direction {
            Direction::Up => changes(from.word()..=end.unwrap_or(u64::MAX)),
            Direction::Down => changes(end.unwrap_or(0)..=from.word()),
        };
        let is_in_part = |place: EdgePlace| match direction {
            Direction::Up => place >= from && rest.is_none_or(|rest| place < rest),
            Direction::Down => place < from && rest.is_none_or(|rest| place >= rest),
        };
        let mut new = 0;
        let mut of = None;
        for (word, change) in in_direction(changed, direction) {
            // Those whose places begin alike are in no order here.
            if new >= more && of != Some(word) {
                break;
            }
            if change.new == NodeId(0) {
                continue;
            }
            let edge = RawEdge { etype, key: change.key, to: change.new };
            let place = EdgePlace::of(form, secret, edge.key, edge.to);
            if is_in_part(place) {
                edges.push((place, edge));
                (new, of) = (new + 1, Some(word));
            }
        }
        sort(&mut edges, direction);
        found.extend(edges.into_iter().take(more).map(|(place, RawEdge { key, to, .. })| {
            let number = (form == InfoForm::Number).then_some(key);
            PlacedEdge { place, edge: Edge { etype, number, to } }
        }));
        match rest {
            Some(rest) if found.len() < max => from = rest,
            _ => return Ok(found),
        }
    }
}

/// What goes up, in a direction.
fn in_direction<I: DoubleEndedIterator>(mut up: I, direction: Direction) -> impl Iterator<Item = I::Item> {
    std::iter::from_fn(move || match direction {
        Direction::Up => up.next(),
        Direction::Down => up.next_back(),
    })
}
