//! The contents of the pages of a LUN in memory. A programmed page never changes, so copies of a device share its pages.

use super::setup::Keep;
use std::sync::Arc;

type Page = Option<Arc<Vec<u8>>>;

/// The pages of a LUN: of each block none, or one entry a page. A page has its data, then its out-of-band bytes.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    keep: Keep,
    page_bytes: usize,
    oob_bytes: usize,
    pages_per_block: usize,
    blocks: Vec<Vec<Page>>,
}

impl Contents {
    pub fn new(keep: Keep, blocks: u32, pages_per_block: u32, page_bytes: u32, oob_bytes: u32) -> Contents {
        let blocks = if keep == Keep::Nothing { Vec::new() } else { vec![Vec::new(); blocks as usize] };
        Contents {
            keep,
            page_bytes: page_bytes as usize,
            oob_bytes: oob_bytes as usize,
            pages_per_block: pages_per_block as usize,
            blocks,
        }
    }

    /// For a LUN whose pages are kept elsewhere.
    pub fn nothing() -> Contents {
        Contents::new(Keep::Nothing, 0, 0, 0, 0)
    }

    /// Whether data has to be given with a program.
    pub fn keeps_data(&self) -> bool {
        self.keep == Keep::All
    }

    #[inline]
    pub fn program(&mut self, block: u32, page: u32, data: &[u8], oob: &[u8]) {
        match self.keep {
            Keep::All => self.keep_page(block, page, data, oob),
            Keep::Oob => self.keep_page(block, page, &[], oob),
            Keep::Nothing => {}
        }
    }

    fn keep_page(&mut self, block: u32, page: u32, kept: &[u8], oob: &[u8]) {
        let mut bytes = Vec::with_capacity(kept.len() + self.oob_bytes);
        bytes.extend_from_slice(kept);
        bytes.extend_from_slice(oob);
        bytes.resize(kept.len() + self.oob_bytes, 0);
        let pages = &mut self.blocks[block as usize];
        if pages.is_empty() {
            pages.resize(self.pages_per_block, None);
        }
        pages[page as usize] = Some(Arc::new(bytes));
    }

    pub fn read(&self, block: u32, page: u32, offset: u32, data: &mut [u8], oob: &mut [u8]) {
        let stored = self.blocks.get(block as usize).and_then(|pages| pages.get(page as usize));
        let Some(Some(stored)) = stored else {
            data.fill(0);
            oob.fill(0);
            return;
        };
        let data_bytes = stored.len() - self.oob_bytes;
        if data_bytes == self.page_bytes {
            data.copy_from_slice(&stored[offset as usize..][..data.len()]);
        } else {
            data.fill(0);
        }
        oob.copy_from_slice(&stored[data_bytes..][..oob.len()]);
    }

    pub fn erase(&mut self, block: u32) {
        if let Some(pages) = self.blocks.get_mut(block as usize) {
            pages.fill(None);
        }
    }
}
