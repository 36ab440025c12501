//! Edges: from the cells of the damaged store's tables into new tables.

use super::copy::Copy;
use super::find::LostTable;
use super::survey::Survey;
use super::with_room;
use crate::edges::table::{check_page, is_hashed};
use crate::edges::{Bundle, COUNTS, MAIN, Main, RawEdge, bundle_of, form_of_cell};
use crate::error::Result;
use crate::ids::{DATA_PAGES_MAX, EdgeType, HomeId, InfoForm, NodeId, PAGE_BYTES};
use crate::pages::access::Words;
use crate::pages::desc::Desc;
use crate::partition::TableNumbers;
use crate::store::Store;
use crate::tx::apply::drop_table_pages;
use rustc_hash::FxHashMap;

/// What the edges of a bundle go out from.
#[derive(Clone, Copy)]
pub(super) struct Bundled {
    pub source: NodeId,
    pub etype: EdgeType,
    pub form: InfoForm,
}

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
        let mut bundles = FxHashMap::default();
        for (page, desc) in tables {
            self.advance(progress);
            let raw = (desc.block != 0).then(|| self.source.page(desc.block, desc.crc)).flatten();
            let words =
                raw.as_deref().and_then(words_of).filter(|words| check_page(words, desc, *page).is_ok());
            let Some(words) = words else {
                // Counts are made anew.
                if desc.body[0] != COUNTS {
                    self.lost_tables.push(LostTable {
                        snode: HomeId(desc.snode),
                        of: bundles.get(&(desc.snode, desc.body[0])).copied(),
                        share: desc.share().ok(),
                    });
                    self.report.lost_table_pages += 1;
                    self.report.remark(format!(
                        "page {page} of an edge table, at block {}, cannot be read",
                        desc.block
                    ));
                }
                continue;
            };
            self.report.bytes += PAGE_BYTES as u64;
            self.take_cells(desc, &words, &mut bundles)?;
        }
        Ok(())
    }

    fn take_cells(
        &mut self,
        desc: &Desc,
        words: &Words,
        bundles: &mut FxHashMap<(u16, u64), Bundled>,
    ) -> Result<()> {
        match desc.body[0] {
            COUNTS => {}
            MAIN => {
                for cell in Main::cells(words) {
                    let (source, etype, form) =
                        (NodeId(cell[0]), EdgeType(cell[1] as u32), form_of_cell(cell[1]));
                    if let Some(id) = bundle_of(cell) {
                        bundles.entry((desc.snode, id)).or_insert(Bundled { source, etype, form });
                    } else {
                        self.take_edge(
                            desc.snode,
                            source,
                            form,
                            RawEdge { etype, key: cell[2], to: NodeId(cell[3]) },
                        )?;
                    }
                }
            }
            id => {
                let Some(Bundled { source, etype, form }) = bundles.get(&(desc.snode, id)).copied() else {
                    let edges = Bundle::count(words) as u64;
                    self.report.dropped_edges += edges;
                    self.report.remark(format!("{edges} edges of which nothing says what they go out from"));
                    return Ok(());
                };
                if is_hashed(words) != (form == InfoForm::Key) {
                    let edges = Bundle::count(words) as u64;
                    self.report.dropped_edges += edges;
                    self.report.remark(format!("{edges} edges of another form than their type's"));
                    return Ok(());
                }
                for cell in Bundle::cells(words) {
                    self.take_edge(
                        desc.snode,
                        source,
                        form,
                        RawEdge { etype, key: cell[0], to: NodeId(cell[1]) },
                    )?;
                }
            }
        }
        Ok(())
    }

    fn take_edge(&mut self, snode: u16, source: NodeId, form: InfoForm, edge: RawEdge) -> Result<()> {
        let fits = source.home() == HomeId(snode) && self.has_form(edge.etype, form);
        let is_taken = fits && put_edge(&self.store, source, form, edge)?;
        self.report.dropped_edges += u64::from(!is_taken);
        Ok(())
    }

    /// Whether edges of a type have infos of this form. Without a catalog that is not known.
    pub(super) fn has_form(&self, etype: EdgeType, form: InfoForm) -> bool {
        let wanted = if etype.is_reserved() { Ok(InfoForm::Number) } else { self.store.form_of(etype) };
        wanted.map_or(!self.has_catalog, |wanted| wanted == form)
    }
}

fn words_of(raw: &[u8]) -> Option<Box<Words>> {
    let raw: &[u8; PAGE_BYTES] = raw.first_chunk()?;
    let mut words = Box::new([0; PAGE_BYTES / 8]);
    for (word, bytes) in words.iter_mut().zip(raw.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Some(words)
}

/// Puts an edge in; `false` when there is such an edge already, or its s-node is not there.
pub(super) fn put_edge(store: &Store, source: NodeId, form: InfoForm, edge: RawEdge) -> Result<bool> {
    let Ok(partition) = store.partition(source.home()) else { return Ok(false) };
    if edge.to.0 == 0 {
        return Ok(false);
    }
    with_room(store, || {
        let mut numbers = TableNumbers(&store.table_numbers);
        store.write(&mut partition.write(), |pages, contents| {
            // A number tells edges apart, a hash does not.
            let is_it = |to: NodeId| Ok(form == InfoForm::Number || to == edge.to);
            if contents.edges.find(pages, source, edge.etype, edge.key, is_it)?.is_some() {
                return Ok(false);
            }
            contents.edges.insert(pages, &mut numbers, source, form, edge)?;
            Ok(true)
        })
    })
}

/// Takes an edge out; `false` when it is not there.
pub(super) fn take_out(store: &Store, source: NodeId, edge: RawEdge) -> Result<bool> {
    let Ok(partition) = store.partition(source.home()) else { return Ok(false) };
    let mut freed = Vec::new();
    let is_out = with_room(store, || {
        store.write(&mut partition.write(), |pages, contents| {
            let found = contents.edges.find(pages, source, edge.etype, edge.key, |to| Ok(to == edge.to))?;
            let Some((spot, _)) = found else { return Ok(false) };
            contents.edges.remove(pages, spot, source, edge.etype, &mut freed)?;
            Ok(true)
        })
    })?;
    let _alone = partition.write();
    drop_table_pages(store, freed);
    Ok(is_out)
}
