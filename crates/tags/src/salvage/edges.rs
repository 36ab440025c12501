//! Edges: from the cells of the damaged store's tables into new tables.

use super::copy::Copy;
use super::known::{LostTable, Nodes, count};
use super::survey::Survey;
use crate::edges::{Bundle, COUNTS, MAIN, RawEdge};
use crate::error::Result;
use crate::ids::{DATA_PAGES_MAX, EdgeType, HomeId, InfoForm, NodeId, PAGE_BYTES};
use crate::inspect::{Bundles, edges_in};
use crate::pages::as_words;
use crate::pages::desc::Desc;
use crate::partition::Partition;
use crate::store::Store;
use crate::tx::apply::drop_table_pages;

impl Copy<'_> {
    /// Puts the edges of all table pages that can be read into new tables. Those of the main tables come first: they say what the
    /// other tables are.
    pub(super) fn take_edges(&mut self, survey: &Survey, progress: &mut impl FnMut(u64, u64)) -> Result<()> {
        let first = survey.pages.partition_point(|(page, _)| *page < DATA_PAGES_MAX);
        let mut tables: Vec<&(u32, Desc)> = survey.pages[first..].iter().collect();
        // By s-node, table and positions, so that cells that go to the same page come together.
        tables.sort_unstable_by_key(|(_, desc)| {
            let first = desc.share().map_or(0, |share| share.first);
            (desc.body[0] != MAIN, desc.snode, desc.body[0], first)
        });
        let mut bundles = Bundles::default();
        for (page, desc) in tables {
            self.advance(progress);
            let raw = (desc.block != 0)
                .then(|| crate::reads::page(self.source.medium, desc.block, desc.crc))
                .flatten();
            let words = raw.as_ref().and_then(|raw| raw.first_chunk()).map(as_words);
            let words = words.filter(|words| desc.check_table(words, *page).is_ok());
            let Some(words) = words else {
                // Counts are made anew.
                if desc.body[0] != COUNTS {
                    self.lost_tables.push(LostTable {
                        page: *page,
                        block: desc.block,
                        snode: HomeId(desc.snode),
                        of: bundles.get(&(desc.snode, desc.body[0])).copied(),
                        share: desc.share().ok(),
                    });
                }
                continue;
            };
            self.report.bytes += PAGE_BYTES as u64;
            match edges_in(desc, words, &mut bundles) {
                Some(edges) => {
                    for (source, form, edge) in edges {
                        let fits = source.home() == HomeId(desc.snode) && self.has_form(edge.etype, form);
                        let is_taken = fits && self.put_edge(source, form, edge)?;
                        self.report.dropped_edges += u64::from(!is_taken);
                    }
                }
                None => {
                    let edges = Bundle::count(words) as u64;
                    self.report.dropped_edges += edges;
                    self.report.remark(format!(
                        "{edges} edges of which nothing says what they go out from, or that have another form than it says"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether edges of a type have infos of this form. Without a catalog that is not known.
    pub(super) fn has_form(&self, etype: EdgeType, form: InfoForm) -> bool {
        let wanted = if etype.is_reserved() { Ok(InfoForm::Number) } else { self.store.form_of(etype) };
        wanted.map_or(!self.has_catalog, |wanted| wanted == form)
    }

    /// Changes a home, with half of the cache free of changes before that.
    pub(super) fn change<T>(
        &self,
        home: HomeId,
        change: impl FnOnce(&Store, &mut Partition) -> Result<T>,
    ) -> Result<T> {
        let partition = self.store.partition(home)?;
        crate::replay::keep_room(&self.store)?;
        change(&self.store, &mut partition.write())
    }

    /// Puts an edge in; `false` when there is such an edge already, or its s-node is not there.
    pub(super) fn put_edge(&self, source: NodeId, form: InfoForm, edge: RawEdge) -> Result<bool> {
        if edge.to.0 == 0 || self.store.snodes.find(source.home()).is_none() {
            return Ok(false);
        }
        self.change(source.home(), |store, partition| {
            store.write(partition, |pages, contents| {
                // A number tells edges apart, a hash does not.
                let is_it = |to: NodeId| Ok(form == InfoForm::Number || to == edge.to);
                if contents.edges.find(pages, source, edge.etype, edge.key, is_it)?.is_some() {
                    return Ok(false);
                }
                contents.edges.insert(pages, source, form, edge)?;
                Ok(true)
            })
        })
    }

    /// Puts an edge by number in, and counts it; `false` as for [`Copy::put_edge`].
    pub(super) fn lead(&self, nodes: &mut Nodes, source: NodeId, edge: RawEdge) -> Result<bool> {
        let is_new = self.put_edge(source, InfoForm::Number, edge)?;
        if is_new {
            count(nodes, source, &edge);
        }
        Ok(is_new)
    }

    /// Takes an edge out; `false` when it is not there.
    pub(super) fn take_out(&self, source: NodeId, edge: RawEdge) -> Result<bool> {
        if self.store.snodes.find(source.home()).is_none() {
            return Ok(false);
        }
        self.change(source.home(), |store, partition| {
            let mut freed = Vec::new();
            let is_out = store
                .write(partition, |pages, contents| contents.edges.remove(pages, source, edge, &mut freed))?;
            drop_table_pages(store, freed);
            Ok(is_out)
        })
    }
}
