#!/bin/sh
# same_packages.sh: fails if a Debian package of which build_parts.txt, beside this
# file, says with what version the programs were made is installed here in
# another: the build id would name an image that is not this one. So it is where
# the layer with the compiler is from a cache, and older than the packages.
#
# Versions are compared letter by letter, with epoch and rebuild (+b1), as dpkg has
# them in both places. What is not installed, or removed but for its settings, does
# not count; of several architectures each does, and dpkg has them of one version.
set -eu

parts="$(dirname "$0")/build_parts.txt"
[ -r "$parts" ] || { echo "same_packages: there is no $parts" >&2; exit 1; }
differing="$(sed -n 's/^package //p' "$parts" | while read -r name version; do
  dpkg-query -W -f='${db:Status-Status} ${Version}\n' "$name" 2>/dev/null |
    sed -n 's/^installed //p' | sort -u | while read -r here; do
    [ "$here" = "$version" ] ||
      echo "  $name: built against $version, here $here"
  done
done)"
[ -n "$differing" ] || exit 0
cat >&2 <<MESSAGE
same_packages: the programs were built against other packages than this image has:
$differing
Build both anew, of one day's packages: docker build --no-cache --pull
(podman and buildah take the same), or, where the programs are not built in the
image, upgrade those packages there first, and build them again.
MESSAGE
exit 1
