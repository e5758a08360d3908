//! Places: the replies are the ones of Redis 8.2.

use super::testing::Door;

#[test]
fn places_are_added_and_shown() {
    Door::new().expect(&[
        ("geoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2|"),
        ("geoadd g nx ch 13 38 Palermo 2.35 48.85 Paris", ":1|"),
        ("geoadd g xx ch 13.361390 38.115556 Palermo 0 0 none", ":0|"),
        ("geoadd g xx nx 1 1 a", "-ERR syntax error|"),
        ("geoadd g 1 2", "-ERR wrong number of arguments for 'geoadd' command|"),
        ("geoadd g 1 2 a 3", "-ERR syntax error|"),
        ("geoadd g x 2 a", "-ERR value is not a valid float|"),
        ("geoadd g 181 2 a", "-ERR invalid longitude,latitude pair 181.000000,2.000000|"),
        ("geoadd g 1 86 a", "-ERR invalid longitude,latitude pair 1.000000,86.000000|"),
        ("geoadd g nan 86 a", "-ERR value is not a valid float|"),
        ("geoadd g inf 8 a", "-ERR invalid longitude,latitude pair inf,8.000000|"),
        ("geoadd g 1 1 a 200 0 b", "-ERR invalid longitude,latitude pair 200.000000,0.000000|"),
        ("zscore g a", "$-1|"),
        ("zscore g Palermo", "$16|3479099956230698|"),
        ("zscore g Catania", "$16|3479447370796909|"),
        ("geopos g Palermo Catania none Paris", "*4|*2|$18|13.361389338970184|$16|38.1155563954963|*2|$18|15.087267458438873|$17|37.50266842333162|*-1|*2|$17|2.349998652935028|$17|48.84999911645039|"),
        ("geopos none a b", "*2|*-1|*-1|"),
        ("geopos g", "*0|"),
        ("geohash g Palermo Catania none Paris", "*4|$11|sqc8b49rny0|$11|sqdtr74hyu0|$-1|$11|u09tvkz5yg0|"),
        ("geohash none a", "*1|$-1|"),
        ("geodist g Palermo Catania", "$11|166274.1516|"),
        ("geodist g Palermo Catania km", "$8|166.2742|"),
        ("geodist g Palermo Catania MI", "$8|103.3182|"),
        ("geodist g Palermo Catania ft", "$11|545518.8700|"),
        ("geodist g Palermo Palermo", "$6|0.0000|"),
        ("geodist g Palermo Catania parsec", "-ERR unsupported unit provided. please use M, KM, FT, MI|"),
        ("geodist g Palermo Catania km x", "-ERR syntax error|"),
        ("geodist g Palermo none", "$-1|"),
        ("geodist none a b", "$-1|"),
    ]);
}

#[test]
fn places_are_found_in_circles_and_boxes() {
    Door::new().expect(&[
        ("geoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2|"),
        ("geosearch g fromlonlat 15 37 byradius 200 km asc", "*2|$7|Catania|$7|Palermo|"),
        ("geosearch g fromlonlat 15 37 byradius 200 km desc withcoord withdist withhash", "*2|*4|$7|Palermo|$8|190.4424|:3479099956230698|*2|$18|13.361389338970184|$16|38.1155563954963|*4|$7|Catania|$7|56.4413|:3479447370796909|*2|$18|15.087267458438873|$17|37.50266842333162|"),
        ("geosearch g frommember Palermo bybox 400 400 km withdist", "*2|*2|$7|Palermo|$6|0.0000|*2|$7|Catania|$8|166.2742|"),
        ("geosearch g frommember Palermo bybox 40 4000 km withdist", "*1|*2|$7|Palermo|$6|0.0000|"),
        ("geosearch g frommember none bybox 400 400 km withdist", "-ERR could not decode requested zset member|"),
        ("geosearch none frommember none bybox 400 400 km withdist", "*0|"),
    ]);
}

#[test]
fn options_of_a_search_are_checked() {
    Door::new().expect(&[
        ("geoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2|"),
        ("geosearch g frommember Palermo byradius 200 km count 1 any", "*1|$7|Palermo|"),
        ("geosearch g frommember Palermo byradius 200 km count 1", "*1|$7|Palermo|"),
        ("geosearch g frommember Palermo byradius 200 km count 0", "-ERR COUNT must be > 0|"),
        (
            "geosearch g frommember Palermo byradius 200 km count x",
            "-ERR value is not an integer or out of range|",
        ),
        (
            "geosearch g frommember Palermo byradius 200 km any",
            "-ERR the ANY argument requires COUNT argument|",
        ),
        ("geosearch g frommember Palermo byradius -1 km", "-ERR radius cannot be negative|"),
        ("geosearch g frommember Palermo byradius x km", "-ERR need numeric radius|"),
        (
            "geosearch g frommember Palermo byradius 1 x",
            "-ERR unsupported unit provided. please use M, KM, FT, MI|",
        ),
        ("geosearch g frommember Palermo bybox x 1 km", "-ERR need numeric width|"),
        ("geosearch g frommember Palermo bybox 1 x km", "-ERR need numeric height|"),
        (
            "geosearch g frommember Palermo bybox -1 1 km",
            "-ERR height or width cannot be negative|",
        ),
        ("geosearch g frommember Palermo bybox 1 1 km byradius 1 km", "-ERR syntax error|"),
        ("geosearch g frommember Palermo fromlonlat 1 1 byradius 1 km", "-ERR syntax error|"),
        (
            "geosearch g frommember Palermo asc desc asc",
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for geosearch|",
        ),
        (
            "geosearch g byradius 1 km asc asc",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch|",
        ),
        ("geosearch g frommember Palermo byradius 1 km store h", "-ERR syntax error|"),
        ("geosearch g frommember Palermo byradius 1 km storedist", "-ERR syntax error|"),
        ("geosearch g frommember Palermo byradius 1 km nonsense", "-ERR syntax error|"),
    ]);
}

#[test]
fn places_that_are_found_are_stored() {
    Door::new().expect(&[
        ("geoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2|"),
        ("geosearchstore h g frommember Palermo byradius 200 km", ":2|"),
        ("zrange h 0 -1 withscores", "*4|$7|Palermo|$16|3479099956230698|$7|Catania|$16|3479447370796909|"),
        ("geosearchstore h g frommember Palermo byradius 200 km storedist", ":2|"),
        ("zrange h 0 -1 withscores", "*4|$7|Palermo|$1|0|$7|Catania|$18|166.27415156960032|"),
        ("geosearchstore h g frommember Palermo byradius 200 km withdist", "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options|"),
        ("geosearchstore h g byradius 200 km asc asc asc", "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearchstore|"),
        ("geosearchstore h none byradius 200 km frommember a", ":0|"),
        ("exists h", ":0|"),
        ("georadius g 15 37 200 km withdist withcoord withhash asc", "*2|*4|$7|Catania|$7|56.4413|:3479447370796909|*2|$18|15.087267458438873|$17|37.50266842333162|*4|$7|Palermo|$8|190.4424|:3479099956230698|*2|$18|13.361389338970184|$16|38.1155563954963|"),
        ("georadius g 15 37 200 km count 1 store h", ":1|"),
        ("georadius g 15 37 200 km count 1 store h withdist", "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options|"),
        ("georadius g 15 37 200 km storedist h", ":2|"),
        ("zrange h 0 -1 withscores", "*4|$7|Catania|$16|56.4412578701582|$7|Palermo|$18|190.44242984775784|"),
        ("georadius_ro g 15 37 200 km store h", "-ERR syntax error|"),
        ("georadius_ro g 15 37 200 km", "*2|$7|Palermo|$7|Catania|"),
        ("georadius none 15 37 200 km", "*0|"),
        ("georadius none 15 37 200 x", "-ERR unsupported unit provided. please use M, KM, FT, MI|"),
        ("georadius none 15 37 200 km store h", ":0|"),
        ("georadius g 15 37 200 km store", "-ERR syntax error|"),
        ("georadiusbymember g Palermo 200 km", "*2|$7|Palermo|$7|Catania|"),
        ("georadiusbymember g none 200 km", "-ERR could not decode requested zset member|"),
        ("georadiusbymember none none 200 x", "*0|"),
        ("georadiusbymember_ro g Palermo 200 km store h", "-ERR syntax error|"),
        ("georadiusbymember_ro g Palermo 200 km withhash", "*2|*2|$7|Palermo|:3479099956230698|*2|$7|Catania|:3479447370796909|"),
        ("georadiusbymember g Palermo 200 km store g", ":2|"),
        ("zrange g 0 -1", "*2|$7|Palermo|$7|Catania|"),
        ("command getkeys georadius g 1 1 1 m count 1 store a storedist b", "*2|$1|g|$1|b|"),
        ("command getkeys georadiusbymember g m 1 m asc", "*1|$1|g|"),
    ]);
}

#[test]
fn other_types_are_refused() {
    Door::new().expect(&[
        ("set s x", "+OK|"),
        ("geoadd s 1 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("geopos s a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("geodist s a b", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("geohash s a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        (
            "georadius s 1 1 1 km",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "geosearch s frommember a byradius 1 km",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
    ]);
}

#[test]
fn places_near_the_borders_are_found() {
    Door::new().expect(&[
        ("geoadd w 179.9 0 a -179.9 0 b 0 85 c 0 -85 d", ":4|"),
        ("geosearch w fromlonlat 180 0 byradius 100 km asc withdist", "*1|*2|$1|a|$7|11.1227|"),
        ("geosearch w fromlonlat 0 0 byradius 20000 km asc withdist", "*2|*2|$1|c|$9|9454.2355|*2|$1|d|$9|9454.2355|"),
        ("geosearch w fromlonlat 0 85 byradius 1000 km asc withdist", "*1|*2|$1|c|$6|0.0000|"),
        ("geosearch w fromlonlat 0 0 bybox 40000 40000 km desc", "*2|$1|c|$1|d|"),
        ("zadd w -1 neg 1e300 big 4503599627370496 over inf i", ":4|"),
        ("geopos w neg big over i", "*4|*2|$3|180|$11|85.05112878|*2|$19|-179.99999731779099|$18|-85.05112751263943|*2|$19|-179.99999731779099|$11|85.05112878|*2|$19|-179.99999731779099|$18|-85.05112751263943|"),
        ("geohash w neg big over i", "*4|$11|bp05b5048p0|$11|00bh0hbj200|$11|bp05b5048p0|$11|00bh0hbj200|"),
    ]);
}

#[test]
fn numbers_have_a_type_in_version_3() {
    let mut door = Door::new();
    door.said("hello 3");
    door.expect(&[
        ("geoadd w 179.9 0 a -179.9 0 b", ":2|"),
        ("geopos w a none", "*2|*2|,179.89999920129776|,1.2673605809254695e-6|_|"),
        ("geosearch w fromlonlat 180 0 byradius 100 km asc withdist withcoord withhash", "*1|*4|$1|a|$7|11.1227|:4128299113121960|*2|,179.89999920129776|,1.2673605809254695e-6|"),
        ("geodist w a b", "$10|22245.4377|"),
        ("geodist w a none", "_|"),
    ]);
}
