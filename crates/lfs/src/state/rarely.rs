//! What few inodes have: a pointer until there is something.

use std::ops::{Deref, DerefMut};

/// What a value is that holds nothing.
pub trait Nothing: Default + 'static {
    /// One for all.
    fn nothing() -> &'static Self;
    /// Whether this one is.
    fn is_nothing(&self) -> bool;
}

/// A value that takes no memory as long as it holds nothing.
#[derive(Debug)]
pub struct Rarely<T>(Option<Box<T>>);

impl<T> Default for Rarely<T> {
    fn default() -> Self {
        Rarely(None)
    }
}

impl<T: Nothing> Rarely<T> {
    /// The value, when there is something to change.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Gives the memory of a value back that holds nothing any more.
    pub fn tidy(&mut self) {
        if self.0.as_ref().is_some_and(|value| value.is_nothing()) {
            self.0 = None;
        }
    }
}

impl<T: Nothing> Deref for Rarely<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::nothing())
    }
}

impl<T: Nothing> DerefMut for Rarely<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}
