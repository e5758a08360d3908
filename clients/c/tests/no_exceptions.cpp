// Compiles the header without exceptions, and uses a scan without its iterators.
#include "thunderhead.hpp"

std::size_t count(thunderhead::Table& table);

std::size_t count(thunderhead::Table& table) {
    std::size_t objects = 0;
    auto scan = table.scan();
    for (auto next = scan.next(); next && *next; next = scan.next()) objects++;
    return objects;
}
