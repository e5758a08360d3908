//! Places on the earth, as scores of sorted sets.
//!
//! A place is a cell of a grid of 2²⁶ by 2²⁶. The score has the bits of its two numbers in turn:
//! the longitude's are the higher ones. So places that are near often have scores that are near. A
//! grid with fewer steps has larger cells, and each of its cells is one range of scores.
//!
//! Distances are those on a sphere. Each formula has the order of operations of Redis, so that all
//! digits are the same.

/// The least and the greatest longitude and latitude. Nearer to the poles the cells of a Mercator
/// projection would be too narrow.
const LONGITUDE_MAX: f64 = 180.0;
const LATITUDE_MAX: f64 = 85.051_128_78;

/// The radius of the earth, in metres.
const RADIUS: f64 = 6_372_797.560_856;

/// Half of the equator in the projection, in metres.
const HALF_EQUATOR: f64 = 20_037_726.37;

/// The bits of each number of a score.
const STEPS_MAX: u32 = 26;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

/// A cell of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    x: u32,
    y: u32,
    steps: u32,
}

/// The borders of a cell.
struct Area {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

/// The places that a search wants. Lengths are in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    Circle(f64),
    /// Its width and height.
    Box(f64, f64),
}

/// Spreads the bits of a number, with a zero behind each.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Collects every second bit.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// Returns the bits of a score. A score that no place has may be negative, or too large.
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    match score < HALF {
        true => score as i64 as u64,
        // The processors on which Redis runs convert it in this way.
        false if score >= 2.0 * HALF => 0,
        false => score as u64,
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (std::f64::consts::PI / 180.0)
}

impl Cell {
    /// Returns the cell of a place in a grid whose latitudes have this limit.
    fn with_limit(place: Place, latitude_max: f64, steps: u32) -> Cell {
        let of = |number: f64, most: f64| {
            ((number + most) / (2.0 * most) * (1_u64 << steps) as f64) as u64 as u32
        };
        let Place { longitude, latitude } = place;
        Cell { x: of(longitude, LONGITUDE_MAX), y: of(latitude, latitude_max), steps }
    }

    fn of(place: Place, steps: u32) -> Cell {
        Cell::with_limit(place, LATITUDE_MAX, steps)
    }

    fn of_score(score: f64) -> Cell {
        let bits = bits_of(score);
        Cell { x: gather(bits >> 1), y: gather(bits), steps: STEPS_MAX }
    }

    fn bits(self) -> u64 {
        spread(self.x) << 1 | spread(self.y)
    }

    /// Returns the cell so many cells to the east and to the north, around the earth if need be. A
    /// place on the last border has a number that is one too high, which stays if it is not moved.
    fn moved(self, east: i32, north: i32) -> Cell {
        let mask = (1 << self.steps) - 1;
        let moved = |number: u32, by: i32| match by {
            0 => number,
            by => number.wrapping_add_signed(by) & mask,
        };
        Cell { x: moved(self.x, east), y: moved(self.y, north), steps: self.steps }
    }

    fn area(self) -> Area {
        let cells = (1_u64 << self.steps) as f64;
        let border = |number: u32, most: f64| -most + (f64::from(number) / cells) * (most - -most);
        Area {
            west: border(self.x, LONGITUDE_MAX),
            east: border(self.x.wrapping_add(1), LONGITUDE_MAX),
            south: border(self.y, LATITUDE_MAX),
            north: border(self.y.wrapping_add(1), LATITUDE_MAX),
        }
    }

    /// Returns the scores of its places: the first, and the one behind the last.
    pub(super) fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEPS_MAX - self.steps);
        ((self.bits() << shift) as f64, ((self.bits() + 1) << shift) as f64)
    }
}

impl Place {
    /// Returns a place, if it is on the map.
    pub(super) fn new(longitude: f64, latitude: f64) -> Option<Place> {
        let is_on_map = (-LONGITUDE_MAX..=LONGITUDE_MAX).contains(&longitude)
            && (-LATITUDE_MAX..=LATITUDE_MAX).contains(&latitude);
        is_on_map.then_some(Place { longitude, latitude })
    }

    /// Returns the middle of the cell with a score.
    pub(super) fn of_score(score: f64) -> Place {
        let area = Cell::of_score(score).area();
        let middle = |one: f64, other: f64, most: f64| ((one + other) / 2.0).clamp(-most, most);
        Place {
            longitude: middle(area.west, area.east, LONGITUDE_MAX),
            latitude: middle(area.south, area.north, LATITUDE_MAX),
        }
    }

    /// Returns the score of the cell that has the place.
    pub(super) fn score(self) -> f64 {
        Cell::of(self, STEPS_MAX).bits() as f64
    }

    /// Returns eleven letters that name the place: a geohash of the usual kind, whose latitudes
    /// reach the poles. There are bits for ten letters; the last one is `0`.
    pub(super) fn letters(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::with_limit(self, 90.0, STEPS_MAX).bits();
        let mut letters = [LETTERS[0]; 11];
        for (place, letter) in letters.iter_mut().take(10).enumerate() {
            *letter = LETTERS[(bits >> (47 - 5 * place)) as usize & 31];
        }
        letters
    }

    /// Returns the distance of two places, in metres.
    pub(super) fn distance(self, other: Place) -> f64 {
        let (one, two) = (radians(self.longitude), radians(other.longitude));
        let across = ((two - one) / 2.0).sin();
        if across == 0.0 {
            return latitude_distance(self.latitude, other.latitude);
        }
        let (one, two) = (radians(self.latitude), radians(other.latitude));
        let along = ((two - one) / 2.0).sin();
        let square = along * along + one.cos() * two.cos() * across * across;
        2.0 * RADIUS * square.sqrt().asin()
    }
}

fn latitude_distance(one: f64, other: f64) -> f64 {
    RADIUS * (radians(other) - radians(one)).abs()
}

impl Shape {
    /// Returns the distance of a place from the middle, if it is in the shape.
    pub(super) fn distance(self, middle: Place, place: Place) -> Option<f64> {
        match self {
            Shape::Circle(radius) => Some(middle.distance(place)).filter(|it| *it <= radius),
            Shape::Box(width, height) => {
                if latitude_distance(place.latitude, middle.latitude) > height / 2.0 {
                    return None;
                }
                let beside = Place { longitude: middle.longitude, latitude: place.latitude };
                if place.distance(beside) > width / 2.0 {
                    return None;
                }
                Some(middle.distance(place))
            }
        }
    }

    /// Returns the borders of the shape. The side that is nearer to the equator gives the width.
    fn area(self, middle: Place) -> Area {
        let (width, height) = match self {
            Shape::Circle(radius) => (radius, radius),
            Shape::Box(width, height) => (width / 2.0, height / 2.0),
        };
        let Place { longitude, latitude } = middle;
        let up = degrees(height / RADIUS);
        let edge = if latitude < 0.0 { latitude - up } else { latitude + up };
        let aside = degrees(width / RADIUS / radians(edge).cos());
        Area {
            west: longitude - aside,
            east: longitude + aside,
            south: latitude - up,
            north: latitude + up,
        }
    }

    /// Returns the greatest distance from the middle.
    fn reach(self) -> f64 {
        match self {
            Shape::Circle(radius) => radius,
            Shape::Box(width, height) => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        }
    }

    /// Returns the cells that have the places of the shape, in the order in which Redis visits
    /// them. The same cell may be there twice, but only as one of two neighbours in the list.
    pub(super) fn cells(self, middle: Place) -> Vec<Cell> {
        let wanted = self.area(middle);
        let mut cell = Cell::of(middle, steps_for(self.reach(), middle.latitude));
        let is_too_small = cell.moved(0, 1).area().north < wanted.north
            || cell.moved(0, -1).area().south > wanted.south
            || cell.moved(1, 0).area().east < wanted.east
            || cell.moved(-1, 0).area().west > wanted.west;
        if cell.steps > 1 && is_too_small {
            cell = Cell::of(middle, cell.steps - 1);
        }
        let own = cell.area();
        let may_skip = cell.steps >= 2;
        let is_needed = |east: i32, north: i32| {
            let is_beside = north < 0 && own.south < wanted.south
                || north > 0 && own.north > wanted.north
                || east < 0 && own.west < wanted.west
                || east > 0 && own.east > wanted.east;
            !(may_skip && is_beside)
        };
        const MOVES: [(i32, i32); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let needed = MOVES.into_iter().filter(|(east, north)| is_needed(*east, *north));
        let mut cells: Vec<Cell> = needed.map(|(east, north)| cell.moved(east, north)).collect();
        cells.dedup();
        cells
    }
}

/// Returns the steps of a grid whose cells are about as large as a circle.
fn steps_for(mut radius: f64, latitude: f64) -> u32 {
    if radius == 0.0 {
        return STEPS_MAX;
    }
    let mut steps = 1_i32;
    while radius < HALF_EQUATOR {
        radius *= 2.0;
        steps += 1;
    }
    // Nearer to the poles, cells are narrower.
    steps -= 2 + i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS_MAX as i32).unsigned_abs()
}
