//! Searches for places: `GEOSEARCH` and the older `GEORADIUS`.

use super::context::{Context, is};
use super::geo::{metres_of, place_of, write_distance, write_place};
use super::geo_hash::{Place, Shape};
use super::number::integer_of;
use super::parser::Arguments;
use super::score::{Cut, score_of};
use super::sorted_set::SortedSet;
use super::sorted_sets_ranges;
use super::stop::{self, Done, Stop};

/// The form of a command that searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `GEORADIUS`: a place and a radius come first.
    Radius,
    /// `GEORADIUSBYMEMBER`: a member and a radius come first.
    Member,
    /// `GEOSEARCH`: all are options.
    Search,
    /// `GEOSEARCHSTORE`: so they are, behind the key of the result.
    SearchStore,
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }
}

/// The order of the places that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Any,
    Nearest,
    Farthest,
}

/// The arguments of a search.
struct Search<'a> {
    middle: Option<Place>,
    shape: Option<Shape>,
    metres: f64,
    /// The most places, if there is a limit.
    count: Option<u64>,
    /// Whether the first places that are found are enough.
    is_any: bool,
    order: Order,
    has_distance: bool,
    has_score: bool,
    has_place: bool,
    store: Option<&'a [u8]>,
    stores_distance: bool,
}

/// A place that was found.
struct Hit {
    member: Vec<u8>,
    score: f64,
    place: Place,
    distance: f64,
}

pub(super) fn georadius(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    search(context, arguments, Form::Radius, true)
}

pub(super) fn georadius_ro(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    search(context, arguments, Form::Radius, false)
}

pub(super) fn by_member(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    search(context, arguments, Form::Member, true)
}

pub(super) fn by_member_ro(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    search(context, arguments, Form::Member, false)
}

pub(super) fn geosearch(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    search(context, arguments, Form::Search, false)
}

pub(super) fn geosearchstore(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    search(context, arguments, Form::SearchStore, true)
}

/// Reads a length, which is at least 0.
fn length_of(text: &[u8], missing: Stop) -> Result<f64, Stop> {
    score_of(text).ok_or(missing)
}

/// Reads a radius and its unit; returns the metres of the unit, too.
fn circle_of(radius: &[u8], unit: &[u8]) -> Result<(Shape, f64), Stop> {
    let radius = length_of(radius, Stop::error("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Stop::error("ERR radius cannot be negative"));
    }
    let metres = metres_of(unit)?;
    Ok((Shape::Circle(radius * metres), metres))
}

/// Reads a width, a height and their unit; returns the metres of the unit, too.
fn box_of(width: &[u8], height: &[u8], unit: &[u8]) -> Result<(Shape, f64), Stop> {
    let width = length_of(width, Stop::error("ERR need numeric width"))?;
    let height = length_of(height, Stop::error("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Stop::error("ERR height or width cannot be negative"));
    }
    let metres = metres_of(unit)?;
    Ok((Shape::Box(width * metres, height * metres), metres))
}

/// Returns the place of a member in the middle of a search. Without a set there is no search.
fn middle_of(
    context: &mut Context<'_>,
    set: &mut Option<SortedSet<'_>>,
    member: &[u8],
) -> Result<Place, Stop> {
    let Some(set) = set else { return Ok(Place { longitude: 0.0, latitude: 0.0 }) };
    let score = set.score(&mut context.objects, member)?;
    score.map(Place::of_score).ok_or(Stop::error("ERR could not decode requested zset member"))
}

impl<'a> Search<'a> {
    fn read(
        context: &mut Context<'_>,
        arguments: Arguments<'a>,
        form: Form,
        may_store: bool,
        set: &mut Option<SortedSet<'_>>,
    ) -> Result<Search<'a>, Stop> {
        let mut search = Search {
            middle: None,
            shape: None,
            metres: 1.0,
            count: None,
            is_any: false,
            order: Order::Any,
            has_distance: false,
            has_score: false,
            has_place: false,
            store: None,
            stores_distance: false,
        };
        let first = match form {
            Form::Radius => {
                search.middle = Some(place_of(&arguments[2], &arguments[3])?);
                search.set_shape(circle_of(&arguments[4], &arguments[5])?);
                6
            }
            Form::Member => {
                search.middle = Some(middle_of(context, set, &arguments[2])?);
                if set.is_some() {
                    search.set_shape(circle_of(&arguments[3], &arguments[4])?);
                }
                5
            }
            Form::Search => 2,
            Form::SearchStore => {
                search.store = arguments.get(1);
                3
            }
        };
        search.read_options(context, arguments, first, form, may_store, set)?;
        search.check(arguments, form)?;
        Ok(search)
    }

    fn set_shape(&mut self, (shape, metres): (Shape, f64)) {
        (self.shape, self.metres) = (Some(shape), metres);
    }

    fn read_options(
        &mut self,
        context: &mut Context<'_>,
        arguments: Arguments<'a>,
        first: usize,
        form: Form,
        may_store: bool,
        set: &mut Option<SortedSet<'_>>,
    ) -> Result<(), Stop> {
        let (mut from_member, mut from_place) = (false, false);
        let mut at = first;
        while let Some(word) = arguments.get(at) {
            let next = |number: usize| arguments.get(at + number);
            let is_search = form.is_search();
            let mut used = 1;
            if is(word, "WITHDIST") {
                self.has_distance = true;
            } else if is(word, "WITHHASH") {
                self.has_score = true;
            } else if is(word, "WITHCOORD") {
                self.has_place = true;
            } else if is(word, "ANY") {
                self.is_any = true;
            } else if is(word, "ASC") {
                self.order = Order::Nearest;
            } else if is(word, "DESC") {
                self.order = Order::Farthest;
            } else if let (true, Some(count)) = (is(word, "COUNT"), next(1)) {
                let count = integer_of(count).ok_or(stop::NOT_AN_INTEGER)?;
                let count = u64::try_from(count).ok().filter(|count| *count > 0);
                self.count = Some(count.ok_or(Stop::error("ERR COUNT must be > 0"))?);
                used = 2;
            } else if let (true, Some(key)) =
                (may_store && !is_search && (is(word, "STORE") || is(word, "STOREDIST")), next(1))
            {
                (self.store, self.stores_distance) = (Some(key), is(word, "STOREDIST"));
                used = 2;
            } else if form == Form::SearchStore && is(word, "STOREDIST") {
                self.stores_distance = true;
            } else if let (true, Some(member)) =
                (is_search && !from_place && is(word, "FROMMEMBER"), next(1))
            {
                self.middle = Some(middle_of(context, set, member)?);
                from_member = true;
                used = 2;
            } else if let (true, Some(longitude), Some(latitude)) =
                (is_search && !from_member && is(word, "FROMLONLAT"), next(1), next(2))
            {
                self.middle = Some(place_of(longitude, latitude)?);
                from_place = true;
                used = 3;
            } else if let (true, Some(radius), Some(unit)) = (
                is_search && !matches!(self.shape, Some(Shape::Box(..))) && is(word, "BYRADIUS"),
                next(1),
                next(2),
            ) {
                self.set_shape(circle_of(radius, unit)?);
                used = 3;
            } else if let (true, Some(width), Some(height), Some(unit)) = (
                is_search && !matches!(self.shape, Some(Shape::Circle(_))) && is(word, "BYBOX"),
                next(1),
                next(2),
                next(3),
            ) {
                self.set_shape(box_of(width, height, unit)?);
                used = 4;
            } else {
                return Err(stop::SYNTAX);
            }
            at += used;
        }
        Ok(())
    }

    fn check(&self, arguments: Arguments<'_>, form: Form) -> Result<(), Stop> {
        if self.store.is_some() && (self.has_distance || self.has_score || self.has_place) {
            let name = match form {
                Form::SearchStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(Stop::error_of(format!(
                "ERR {name} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let missing = |words: &str| {
            let text = [b"ERR exactly one of ", words.as_bytes(), b" can be specified for "];
            Stop::error_of([&text.concat()[..], &arguments[0]].concat())
        };
        if form.is_search() && self.middle.is_none() {
            return Err(missing("FROMMEMBER or FROMLONLAT"));
        }
        if form.is_search() && self.shape.is_none() {
            return Err(missing("BYRADIUS and BYBOX"));
        }
        if self.is_any && self.count.is_none() {
            return Err(Stop::error("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// Returns the places that the search wants, in its order.
    fn hits(&self, context: &mut Context<'_>, set: &mut SortedSet<'_>) -> Result<Vec<Hit>, Stop> {
        let (Some(middle), Some(shape)) = (self.middle, self.shape) else {
            return Ok(Vec::new());
        };
        let objects = &mut context.objects;
        let limit = self.count.filter(|_| self.is_any).unwrap_or(u64::MAX);
        let mut hits: Vec<Hit> = Vec::new();
        for cell in shape.cells(middle) {
            let (begin, end) = cell.scores();
            let begin = set.before(objects, &Cut::Score(begin))?;
            let end = set.before(objects, &Cut::Score(end))?;
            if hits.len() as u64 >= limit || begin >= end {
                continue;
            }
            set.visit(objects, begin..end, false, |score, member| {
                let place = Place::of_score(score);
                if let Some(distance) = shape.distance(middle, place) {
                    hits.push(Hit { member: member.to_vec(), score, place, distance });
                }
                (hits.len() as u64) < limit
            })?;
        }
        match (self.order, self.count) {
            (Order::Farthest, _) => {
                hits.sort_by(|one, other| other.distance.total_cmp(&one.distance));
            }
            (Order::Any, Some(_)) if self.is_any => {}
            (Order::Any, None) => {}
            (Order::Nearest | Order::Any, _) => {
                hits.sort_by(|one, other| one.distance.total_cmp(&other.distance));
            }
        }
        if let Some(count) = self.count.and_then(|count| usize::try_from(count).ok()) {
            hits.truncate(count);
        }
        Ok(hits)
    }

    fn reply(&self, context: &mut Context<'_>, hits: &[Hit]) -> Done {
        let parts = [self.has_distance, self.has_score, self.has_place];
        let parts = parts.into_iter().filter(|has| *has).count();
        context.reply.array(hits.len());
        for hit in hits {
            if parts > 0 {
                context.reply.array(1 + parts);
            }
            context.reply.string(&hit.member);
            if self.has_distance {
                write_distance(&mut context.reply, hit.distance / self.metres);
            }
            if self.has_score {
                context.reply.integer(hit.score as i64);
            }
            if self.has_place {
                write_place(&mut context.reply, hit.place);
            }
            context.check_reply()?;
        }
        Ok(())
    }

    /// Writes the places to the key of the result.
    fn save(&self, context: &mut Context<'_>, key: &[u8], hits: Vec<Hit>, form: Form) -> Done {
        let score = |hit: &Hit| match self.stores_distance {
            true => hit.distance / self.metres,
            false => hit.score,
        };
        let members = hits.into_iter().map(|hit| (score(&hit) + 0.0, hit.member));
        let mut members: Vec<(f64, Vec<u8>)> = members.collect();
        members.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
        let name = match form {
            Form::SearchStore => "geosearchstore",
            _ => "georadiusstore",
        };
        sorted_sets_ranges::store(context, key, &members, name)
    }
}

fn search(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    form: Form,
    may_store: bool,
) -> Done {
    let source = &arguments[if form == Form::SearchStore { 2 } else { 1 }];
    let mut set = SortedSet::read(&mut context.objects, source)?;
    let search = Search::read(context, arguments, form, may_store, &mut set)?;
    let hits = match &mut set {
        Some(set) => search.hits(context, set)?,
        None => Vec::new(),
    };
    match search.store {
        Some(key) => search.save(context, key, hits, form),
        None => search.reply(context, &hits),
    }
}
