//! One process owns a volume and serves it to others.
