#!/bin/sh
# Installs the library into an empty directory, and builds and runs programs with it there: with
# pkg-config, with the static library, and with CMake. install_test.sh BUILD_DIRECTORY EXAMPLES
set -eu
build=$1
examples=$2
work=$(mktemp -d)
store=
trap 'test -z "$store" || kill "$store"; rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cp "$examples/c/hello.c" "$examples/cpp/hello.cpp" "$work"
cd "$work"
lib=$(dirname "$(find prefix -name libthunderhead.so)")
PKG_CONFIG_PATH=$work/$lib/pkgconfig
LD_LIBRARY_PATH=$work/$lib
export PKG_CONFIG_PATH LD_LIBRARY_PATH
sed -i "s|^prefix=.*|prefix=$work/prefix|" "$PKG_CONFIG_PATH/thunderhead.pc"

cc -Wall -Wextra -Werror hello.c -o hello $(pkg-config --cflags --libs thunderhead)
c++ -std=c++20 -Wall -Wextra -Werror hello.cpp -o hello_cpp $(pkg-config --cflags --libs thunderhead)
cc hello.c -o hello_static $(pkg-config --cflags thunderhead) "$lib/libthunderhead.a" \
    $(pkg-config --static --libs-only-l thunderhead | sed 's/-lthunderhead//')
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.22)
project(outside C CXX)
find_package(thunderhead 0.1 REQUIRED)
add_executable(hello_cmake hello.c)
target_link_libraries(hello_cmake PRIVATE thunderhead::thunderhead)
add_executable(hello_cmake_static hello.c)
target_link_libraries(hello_cmake_static PRIVATE thunderhead::static)
END
cmake -S . -B out -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build out >/dev/null

test -n "${THUNDERHEAD-}" || { echo "THUNDERHEAD does not name the program" && exit 77; }
mkfifo line
"$THUNDERHEAD" dev --ephemeral --json >line &
store=$!
read -r first <line
address=$(echo "$first" | sed 's/.*"coordinators":\["\([^"]*\)".*/\1/')
for program in ./hello ./hello_cpp ./hello_static out/hello_cmake out/hello_cmake_static; do
    "$program" "thunderhead://$address/" >output || { echo "$program failed" && exit 1; }
    grep -q ada output
done
