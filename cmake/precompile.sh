#!/bin/sh
# precompile.sh LAUNCHER... COMPILER ARGS...: precompiles a header through ccache.
# GCC tells by a header's bytes whether it is precompiled already, and reads it
# a second time where they differ. So a comment counts as much as code does, and
# an older precompiled header must not be what ccache preprocesses; what direct
# mode remembers may have been found without either.
set -eu
before=
for argument; do
  case $before$argument in
    -o*.gch | -o*.pch) rm -f "$argument" ;;
  esac
  before=$argument
done
export CCACHE_COMMENTS=1 CCACHE_NODIRECT=1
exec "$@"
