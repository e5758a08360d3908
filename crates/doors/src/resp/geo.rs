//! Commands about places, which are members of sorted sets. See `geo_hash.rs` for their scores.

use super::commands::{Begin, Command, DENYOOM, Group, Keys, MOVABLE_KEYS, READONLY, WRITE};
use super::context::{Context, from, is};
use super::geo_hash::Place;
use super::geo_search;
use super::parser::Arguments;
use super::score::score;
use super::sorted_set::{self, SortedSet};
use super::sorted_sets;
use super::stop::{self, Done, Stop};
use super::writer::Writer;

const READ: &[Keys] = &[Keys::one("RO access", 1)];
const STORE: &[Keys] = &[
    Keys::one("RO access", 1),
    Keys { begin: Begin::Keyword("STORE", 6), ..Keys::one("OW update", 1) },
    Keys { begin: Begin::Keyword("STOREDIST", 6), ..Keys::one("OW update", 1) },
];
const STORE_OF_MEMBER: &[Keys] = &[
    Keys::one("RO access", 1),
    Keys { begin: Begin::Keyword("STORE", 5), ..Keys::one("OW update", 1) },
    Keys { begin: Begin::Keyword("STOREDIST", 5), ..Keys::one("OW update", 1) },
];

pub(super) const COMMANDS: &[Command] = &[
    Command::new("geoadd", -5, WRITE | DENYOOM, geoadd).keys(&[Keys::one("RW update", 1)]).about(
        Group::Geo,
        "3.2.0",
        "Adds places to a sorted set, or moves them.",
    ),
    Command::new("geodist", -4, READONLY, geodist).keys(READ).about(
        Group::Geo,
        "3.2.0",
        "Returns the distance of two places.",
    ),
    Command::new("geohash", -2, READONLY, geohash).keys(READ).about(
        Group::Geo,
        "3.2.0",
        "Returns the geohashes of places.",
    ),
    Command::new("geopos", -2, READONLY, geopos).keys(READ).about(
        Group::Geo,
        "3.2.0",
        "Returns the longitudes and latitudes of places.",
    ),
    Command::new("georadius", -6, WRITE | DENYOOM | MOVABLE_KEYS, geo_search::georadius)
        .keys(STORE)
        .about(Group::Geo, "3.2.0", "Finds the places around one, and may store them."),
    Command::new("georadius_ro", -6, READONLY, geo_search::georadius_ro).keys(READ).about(
        Group::Geo,
        "3.2.10",
        "Finds the places around one.",
    ),
    Command::new("georadiusbymember", -5, WRITE | DENYOOM | MOVABLE_KEYS, geo_search::by_member)
        .keys(STORE_OF_MEMBER)
        .about(Group::Geo, "3.2.0", "Finds the places around a member, and may store them."),
    Command::new("georadiusbymember_ro", -5, READONLY, geo_search::by_member_ro).keys(READ).about(
        Group::Geo,
        "3.2.10",
        "Finds the places around a member.",
    ),
    Command::new("geosearch", -7, READONLY, geo_search::geosearch).keys(READ).about(
        Group::Geo,
        "6.2.0",
        "Finds the places in a circle or in a box.",
    ),
    Command::new("geosearchstore", -8, WRITE | DENYOOM, geo_search::geosearchstore)
        .keys(&[Keys::one("OW update", 1), Keys::one("RO access", 2)])
        .about(Group::Geo, "6.2.0", "Stores the places in a circle or in a box."),
];

/// Reads a longitude and a latitude.
pub(super) fn place_of(longitude: &[u8], latitude: &[u8]) -> Result<Place, Stop> {
    let (longitude, latitude) = (score(longitude)?, score(latitude)?);
    Place::new(longitude, latitude).ok_or_else(|| {
        Stop::error_of(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"))
    })
}

/// Reads a unit; returns its metres.
pub(super) fn metres_of(unit: &[u8]) -> Result<f64, Stop> {
    const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let unit = UNITS.into_iter().find(|(name, _)| is(unit, name));
    unit.map(|(_, metres)| metres)
        .ok_or(Stop::error("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Writes a distance, with four digits behind the point.
pub(super) fn write_distance(reply: &mut Writer<'_>, distance: f64) {
    let parts = (distance * 10_000.0).round_ties_even() as u64;
    reply.string(format!("{}.{:04}", parts / 10_000, parts % 10_000).as_bytes());
}

/// Writes a longitude and a latitude.
pub(super) fn write_place(reply: &mut Writer<'_>, place: Place) {
    reply.array(2);
    reply.double(place.longitude);
    reply.double(place.latitude);
}

fn geoadd(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let (options, first) = sorted_sets::Options::of_places(arguments)?;
    let numbers = from(arguments, first).zip(from(arguments, first + 1)).step_by(3);
    let places = numbers.map(|(longitude, latitude)| place_of(longitude, latitude));
    let members = from(arguments, first + 2).step_by(3);
    let scored = places.zip(members.clone());
    let scored = scored.map(|(place, member)| Ok((place?.score(), member)));
    let scored = scored.collect::<Result<Vec<_>, Stop>>()?;
    sorted_set::check(&context.objects, members)?;
    sorted_sets::add_members(context, &arguments[1], options, &scored)
}

/// Returns the places of members; `None` for each member that the set does not have.
fn places_of<'a>(
    context: &mut Context<'_>,
    key: &[u8],
    members: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Option<Place>>, Stop> {
    let objects = &mut context.objects;
    let mut set = SortedSet::read(objects, key)?;
    let of_member = |member: &[u8]| match &mut set {
        Some(set) => Ok(set.score(objects, member)?.map(Place::of_score)),
        None => Ok(None),
    };
    members.map(of_member).collect()
}

fn geodist(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let metres = match arguments.get(4) {
        Some(unit) if arguments.len() == 5 => metres_of(unit)?,
        Some(_) => return Err(stop::SYNTAX),
        None => 1.0,
    };
    let members = from(arguments, 2).take(2);
    match places_of(context, &arguments[1], members)?[..] {
        [Some(one), Some(other)] => {
            write_distance(&mut context.reply, one.distance(other) / metres);
        }
        _ => context.reply.null(),
    }
    Ok(())
}

fn geohash(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let places = places_of(context, &arguments[1], from(arguments, 2))?;
    context.reply.array(places.len());
    for place in places {
        match place {
            Some(place) => context.reply.string(&place.letters()),
            None => context.reply.null(),
        }
    }
    Ok(())
}

fn geopos(context: &mut Context<'_>, arguments: Arguments<'_>) -> Done {
    let places = places_of(context, &arguments[1], from(arguments, 2))?;
    context.reply.array(places.len());
    for place in places {
        match place {
            Some(place) => write_place(&mut context.reply, place),
            None => context.reply.null_array(),
        }
    }
    Ok(())
}
