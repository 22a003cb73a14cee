//! Screenshots that are small enough to be kept.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::Path;

use super::window::Browser;

/// How many bytes a picture may have.
const LIMIT: usize = 60_000;

impl Browser {
    /// Makes a picture of what the window shows, and asserts that it is small, as is the one of this name under `docs/`. With
    /// `SCREENSHOTS=overwrite` it takes the place of that one.
    pub(crate) fn picture(&self, name: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        let picture = self.pictured();
        assert!(picture.len() < LIMIT, "{name} would have {} bytes", picture.len());
        if env::var_os("SCREENSHOTS").is_some_and(|asked| asked == "overwrite") {
            fs::write(&file, picture).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
        let kept = fs::metadata(&file).map(|kept| kept.len());
        let kept = kept.unwrap_or_else(|error| {
            panic!("{}: {error}. Run this test with SCREENSHOTS=overwrite, and look at the picture.", file.display())
        });
        assert!(kept < LIMIT as u64, "{} has {kept} bytes", file.display());
    }

    /// What the window shows, as a PNG of at most 256 colours.
    pub(crate) fn pictured(&self) -> Vec<u8> {
        let picture = self.ask(self.client().screenshot()).unwrap_or_else(|error| panic!("no screenshot: {error}"));
        reduced(&picture)
    }
}

type Colour = [u8; 3];

/// Writes a picture again with its 256 most frequent colours, and the others as the nearest of these.
fn reduced(picture: &[u8]) -> Vec<u8> {
    let (width, height, pixels) = decoded(picture);
    let mut frequent: HashMap<Colour, u32> = HashMap::new();
    for pixel in &pixels {
        *frequent.entry(*pixel).or_default() += 1;
    }
    let mut palette: Vec<(u32, Colour)> = frequent.iter().map(|(colour, count)| (*count, *colour)).collect();
    // By colour too, so that the same picture has the same bytes.
    palette.sort_unstable_by(|one, other| other.cmp(one));
    palette.truncate(256);
    let palette: Vec<Colour> = palette.into_iter().map(|(_, colour)| colour).collect();
    let nearest: HashMap<Colour, u8> = frequent.keys().map(|colour| (*colour, nearest(*colour, &palette))).collect();
    let mut written = Vec::new();
    let mut encoder = png::Encoder::new(&mut written, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_palette(palette.concat());
    encoder.set_compression(png::Compression::High);
    // The numbers of colours are no distances, which a filter would make smaller.
    encoder.set_filter(png::Filter::NoFilter);
    let indexes: Vec<u8> = pixels.iter().map(|pixel| nearest[pixel]).collect();
    let mut writer = encoder.write_header().expect("it is written to memory");
    writer.write_image_data(&indexes).expect("it is written to memory");
    writer.finish().expect("it is written to memory");
    written
}

fn decoded(picture: &[u8]) -> (u32, u32, Vec<Colour>) {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(picture));
    decoder.set_transformations(png::Transformations::STRIP_16 | png::Transformations::EXPAND);
    let mut reader = decoder.read_info().expect("the browser makes a picture");
    let mut bytes = vec![0; reader.output_buffer_size().expect("the picture fits into memory")];
    let frame = reader.next_frame(&mut bytes).expect("the browser makes a picture");
    let samples = frame.color_type.samples();
    assert!(samples >= 3, "the picture has colours: {:?}", frame.color_type);
    let pixels = bytes[..frame.buffer_size()].chunks_exact(samples);
    (frame.width, frame.height, pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
}

fn nearest(colour: Colour, palette: &[Colour]) -> u8 {
    let distance = |other: &Colour| -> u32 {
        let parts = colour.iter().zip(other);
        parts.map(|(one, other)| u32::from(one.abs_diff(*other)).pow(2)).sum()
    };
    let place = (0..palette.len()).min_by_key(|place| distance(&palette[*place])).expect("a picture has a colour");
    u8::try_from(place).expect("at most 256 colours")
}
