# Shared code of the scripts; sourced. Leaves the caller in the repository's root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Paths inside the repository are hashed relative to it, so that every clone on this machine shares one cache.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
# Precompiled headers are cached only with these; no code here asks for the time of compiling.
export CCACHE_SLOPPINESS=pch_defines,time_macros

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

say() { printf '\n== %s\n' "$*"; }

# configure PRESET, once in a script: the log is shown only when it fails.
configured=
configure() {
  [[ " $configured " == *" $1 "* ]] && return
  configured+=" $1"
  mkdir -p build
  if ! cmake --preset "$1" >"build/$1.log" 2>&1; then
    cat "build/$1.log" >&2
    fail "configuring $1 failed"
  fi
}

# build PRESET [TARGET...]: configures and builds; the log is shown only when it fails.
build() {
  local preset=$1 begin=$SECONDS
  shift
  configure "$preset"
  if ! ninja -C "build/$preset" "$@" >"build/$preset.log" 2>&1; then
    grep -v '^\[' "build/$preset.log" | tail -n 60 >&2
    fail "building $preset failed; all of it is in build/$preset.log"
  fi
  echo "$preset: built in $((SECONDS - begin)) s"
}
