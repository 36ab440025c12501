//! The picture as PNG: the cells, and before each row its place in small digits.

use super::{FILE_CELL, FILE_CELLS, HeatMap, cells};

/// Digits and the slash, three columns by five rows; a row is three bits, the left one highest.
const GLYPHS: [(char, [u8; 5]); 11] = [
    ('0', [7, 5, 5, 5, 7]),
    ('1', [2, 6, 2, 2, 7]),
    ('2', [7, 1, 7, 4, 7]),
    ('3', [7, 1, 7, 1, 7]),
    ('4', [5, 5, 7, 1, 1]),
    ('5', [7, 4, 7, 1, 7]),
    ('6', [7, 4, 7, 5, 7]),
    ('7', [7, 1, 1, 1, 1]),
    ('8', [7, 5, 7, 5, 7]),
    ('9', [7, 5, 7, 1, 7]),
    ('/', [1, 1, 2, 4, 4]),
];
/// From one sign to the next.
const STEP: usize = 4;

/// Pixels of red, green and blue, row by row.
struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    fn set(&mut self, x: usize, y: usize, colour: [u8; 3]) {
        let at = (y * self.width + x) * 3;
        if x < self.width
            && let Some(pixel) = self.pixels.get_mut(at..at + 3)
        {
            pixel.copy_from_slice(&colour);
        }
    }

    fn sign(&mut self, sign: char, x: usize, y: usize) {
        let Some((_, rows)) = GLYPHS.iter().find(|(known, _)| *known == sign) else { return };
        for (down, row) in rows.iter().enumerate() {
            for across in (0..3).filter(|across| row >> (2 - across) & 1 == 1) {
                self.set(x + across, y + down, [0, 0, 0]);
            }
        }
    }

    fn encode(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header()?.write_image_data(&self.pixels)?;
        Ok(out)
    }
}

pub fn picture(map: &HeatMap) -> Result<Vec<u8>, png::EncodingError> {
    let signs = map.rows.iter().map(|row| row.short.len()).max().unwrap_or(0);
    let margin = signs * STEP + 2;
    let (width, height) = (margin + map.file_columns().max(1) * FILE_CELL, map.rows.len().max(1) * FILE_CELL);
    let mut canvas = Canvas { width, height, pixels: vec![255; width * height * 3] };
    for (number, row) in map.rows.iter().enumerate() {
        let y = number * FILE_CELL;
        for (place, sign) in row.short.chars().enumerate() {
            canvas.sign(sign, place * STEP + 1, y + 1);
        }
        for (column, cell) in cells(row, FILE_CELLS).into_iter().enumerate() {
            let (x, colour) = (margin + column * FILE_CELL, map.colour(cell));
            for at in 0..FILE_CELL * FILE_CELL {
                canvas.set(x + at % FILE_CELL, y + at / FILE_CELL, colour);
            }
        }
    }
    canvas.encode()
}

#[cfg(test)]
mod tests {
    use super::super::tests::map;
    use super::*;

    #[test]
    fn the_png_is_read_back_with_the_colours_of_its_cells_and_its_labels() {
        let bytes = picture(&map()).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let frame = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((frame.width, frame.height), (14 + 4 * 8, 16));
        let pixel = |x: u32, y: u32| {
            let at = ((y * frame.width + x) * 3) as usize;
            [pixels[at], pixels[at + 1], pixels[at + 2]]
        };
        assert_eq!(pixel(14 + 8, 0), [255, 55, 55], "the most worn block");
        assert_eq!((pixel(14, 0), pixel(14 + 16, 15)), ([255; 3], [0; 3]), "an unused one and a bad one");
        // The label "0/1": the top of the 0, and the stem of the 1 in the second row.
        assert_eq!((pixel(1, 1), pixel(2, 2), pixel(10, 9)), ([0; 3], [255; 3], [0; 3]));
    }
}
