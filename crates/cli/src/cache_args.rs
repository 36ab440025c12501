//! How the cache of a tag store chooses what leaves it.

use clap::{Args, ValueEnum};
use std::sync::Arc;
use weft_tags::{ClassPriorities, ClassShare, EvictionPolicy, PageClass, Sieve};

/// How the cache chooses pages.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CachePolicy {
    /// Pages that were not used lately leave first, those of classes with the lowest priority before others.
    #[default]
    Clock,
    /// SIEVE: new pages that nobody uses again leave before old ones that are used.
    Sieve,
}

/// Classes of pages in the cache of a tag store.
#[derive(Args, PartialEq, Debug, Default)]
pub struct CacheArgs {
    /// Set the eviction priority of a class of pages, and its share of the cache. CLASS is a data class of s-nodes
    /// (groups of nodes; files and directories of TagFS): unknown, metadata, log, immutable, in-place, small or temporary. CLASS
    /// selects the pages that hold nodes of at most a page; CLASS-large, such as unknown-large, the pages of larger nodes
    /// (files above 64 KiB); CLASS-edges the pages that hold edges. The cache first evicts pages of the classes with the
    /// lowest PRIORITY (0 to 255; 0 for classes that you do not name). The class keeps at least LEAST percent of the
    /// cache, and uses at most MOST percent [default: 0-100]. Repeat the option for several classes.
    #[arg(long, value_name = "CLASS=PRIORITY[:LEAST-MOST]", value_parser = parse_share)]
    pub cache_class: Vec<(PageClass, ClassShare)>,
    /// How the cache chooses pages to evict. With sieve, PRIORITY of --cache-class is a weight, up to 64: pages of the class
    /// stay in the cache for so many passes after their last use (1 for classes that you do not name), and classes have no
    /// shares [default: clock]
    #[arg(long, value_enum)]
    pub cache_policy: Option<CachePolicy>,
}

impl CacheArgs {
    /// The policy that was asked for, if one was.
    pub fn eviction(&self) -> Option<Arc<dyn EvictionPolicy>> {
        if self.cache_policy == Some(CachePolicy::Sieve) {
            let mut sieve = Sieve::default();
            self.cache_class.iter().for_each(|(class, share)| sieve.set(*class, share.priority));
            return Some(Arc::new(sieve));
        }
        if self.cache_class.is_empty() {
            return None;
        }
        let mut classes = ClassPriorities::default();
        self.cache_class.iter().for_each(|(class, share)| classes.set(*class, *share));
        Some(Arc::new(classes))
    }
}

fn parse_share(text: &str) -> Result<(PageClass, ClassShare), String> {
    let (name, share) = text.split_once('=').ok_or("expected CLASS=PRIORITY, as in small=1")?;
    let class = PageClass::all().find(|class| class.to_string() == name);
    let class = class.ok_or_else(|| {
        format!("there is no class '{name}'; examples of classes are small, small-large and small-edges")
    })?;
    let (priority, quotas) = share.split_once(':').unwrap_or((share, "0-100"));
    let priority =
        priority.parse().map_err(|_| format!("priority '{priority}': expected a number from 0 to 255"))?;
    let percents =
        quotas.split_once('-').and_then(|(least, most)| Some((least.parse().ok()?, most.parse().ok()?)));
    match percents {
        Some((least_percent, most_percent)) if least_percent <= most_percent && most_percent <= 100 => {
            Ok((class, ClassShare { priority, least_percent, most_percent }))
        }
        _ => Err(format!("share '{quotas}': expected two percentages such as 5-50")),
    }
}
