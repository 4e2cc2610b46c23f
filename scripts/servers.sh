#!/usr/bin/env bash
# Provisions the real servers that the tests and the demo run against.
#
#   scripts/servers.sh              everything that `make test` needs
#   scripts/servers.sh --only demo  only what `make demo` needs
#
# From the machine's own Debian release, installed as packages:
#   MariaDB 10.11, memcached, libmemcached-tools, redis-server; gcc, if there is none
# From Debian's unstable suite, unpacked into a cached folder and never installed:
#   mysql-9.7, mariadb-11.8, memcached-1.6.45
#
# The folder is $ROWCACHED_SERVERS, by default $XDG_CACHE_HOME/rowcached/servers. An unpacked server is
# started through FOLDER/NAME/run/PROGRAM, which uses that folder's own loader and libraries.
#
# Idempotent: what is there already is left alone, and then nothing is asked of the network.
# No service is left running: a package that wants to start its own is told not to.
set -euo pipefail

servers="${ROWCACHED_SERVERS:-${XDG_CACHE_HOME:-$HOME/.cache}/rowcached/servers}"
only=all
while [ $# -gt 0 ]; do
	case "$1" in
	--only)
		[ $# -ge 2 ] || { echo "servers.sh: --only needs a word (demo)" >&2; exit 2; }
		only="$2"
		shift 2
		;;
	-h | --help)
		sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"
		exit 0
		;;
	*)
		echo "servers.sh: unknown argument $1" >&2
		exit 2
		;;
	esac
done
case "$only" in all | demo) ;; *)
	echo "servers.sh: --only knows the word demo" >&2
	exit 2
	;;
esac

say() { printf 'servers: %s\n' "$*" >&2; }
die() {
	say "$*"
	exit 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "installing Debian packages needs root: run this script as root once"
	fi
}

work=
policy=
cleanup() {
	[ -z "$policy" ] || as_root rm -f "$policy"
	[ -z "$work" ] || rm -rf "$work"
}
trap cleanup EXIT

installed() { [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" = "install ok installed" ]; }

# install_packages PACKAGE... installs the ones that are missing, without starting what they bring.
install_packages() {
	local missing=() p
	for p in "$@"; do
		installed "$p" || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "needs a Debian machine (apt-get); missing: ${missing[*]}"
	say "installing ${missing[*]}"
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		policy=/usr/sbin/policy-rc.d
		printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
		as_root chmod 755 "$policy"
	fi
	local get=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
	if ! as_root "${get[@]}" install -y --no-install-recommends "${missing[@]}" >"$work/apt.log" 2>&1; then
		# The package lists are absent or too old: only now are they worth the time.
		as_root "${get[@]}" update >"$work/apt.log" 2>&1 || { cat "$work/apt.log" >&2; die "apt-get update failed"; }
		as_root "${get[@]}" install -y --no-install-recommends "${missing[@]}" >"$work/apt.log" 2>&1 ||
			{ cat "$work/apt.log" >&2; die "apt-get install failed"; }
	fi
	if [ -n "$policy" ]; then
		as_root rm -f "$policy"
		policy=
	fi
}

# repository prints the URI of the archive this machine itself installs its release from.
repository() {
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		awk '$3 == "main" && $1 !~ /security/ && $2 !~ /-/ && $1 ~ /\/debian\/?$/ {print $1; exit}'
}

# private_apt runs an apt-get that sees only the unstable suite and believes that nothing is installed.
private_apt() {
	env DEBIAN_FRONTEND=noninteractive apt-get -q \
		-o APT::Sandbox::User=root \
		-o Dir::Etc::sourcelist="$work/apt/sources.list" \
		-o Dir::Etc::sourceparts=- \
		-o Dir::Etc::preferences=- \
		-o Dir::Etc::preferencesparts=- \
		-o Dir::State="$work/apt/state" \
		-o Dir::State::Lists="$work/apt/lists" \
		-o Dir::State::status="$work/apt/status" \
		-o Dir::Cache="$work/apt/cache" \
		-o Dir::Cache::archives="$work/apt/archives" \
		-o Acquire::Languages=none \
		-o Acquire::Retries=3 \
		-o Debug::NoLocking=true \
		"$@"
}

private_apt_ready() {
	[ ! -e "$work/apt/ready" ] || return 0
	local uri key signed=
	uri="$(repository)"
	[ -n "$uri" ] || die "found no Debian archive in this machine's apt sources"
	key=/usr/share/keyrings/debian-archive-keyring.gpg
	[ ! -e "$key" ] || signed="[signed-by=$key] "
	mkdir -p "$work/apt/lists/partial" "$work/apt/cache" "$work/apt/state" "$work/apt/archives/partial"
	: >"$work/apt/status"
	printf 'deb %s%s unstable main\n' "$signed" "$uri" >"$work/apt/sources.list"
	say "reading the index of the unstable suite"
	private_apt update >"$work/unstable.log" 2>&1 || { cat "$work/unstable.log" >&2; die "reading the unstable suite failed"; }
	: >"$work/apt/ready"
}

# first prints the first of its arguments that exists.
first() {
	local f
	for f in "$@"; do
		if [ -e "$f" ]; then
			printf '%s\n' "$f"
			return
		fi
	done
}

# unpack NAME PROGRAM PACKAGE [ARG...] unpacks PACKAGE and all it depends on into $servers/NAME and writes
# run/PROGRAM, which starts the program with ARG... (where ROOT stands for the folder) before its own arguments.
unpack() {
	local name="$1" program="$2" package="$3" root="$servers/$1"
	shift 3
	[ ! -e "$root/.complete" ] || return 0
	private_apt_ready
	say "unpacking $name"
	rm -rf "$work/apt/archives" "$work/$name"
	mkdir -p "$work/apt/archives/partial"
	private_apt install -y --download-only --no-install-recommends "$package" >"$work/unstable.log" 2>&1 ||
		{ cat "$work/unstable.log" >&2; die "downloading $package from the unstable suite failed"; }

	local tree="$work/$name" d deb
	for d in bin sbin lib lib64; do
		mkdir -p "$tree/usr/$d"
		ln -s "usr/$d" "$tree/$d"
	done
	for deb in "$work"/apt/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tree" --keep-directory-symlink \
			--exclude './usr/share/doc/*' --exclude './usr/share/man/*' --exclude './usr/share/locale/*' \
			--exclude './dev/*'
	done

	local loader libs
	loader="$(cd "$tree" && first usr/lib64/ld-linux-*.so.* usr/lib/ld-linux-*.so.*)"
	libs="$(cd "$tree" && first usr/lib/*-linux-gnu)"
	[ -n "$loader" ] && [ -n "$libs" ] || die "$package brought no C library"
	local binary
	binary="$(cd "$tree" && first "usr/sbin/$program" "usr/bin/$program")"
	[ -n "$binary" ] || die "$package brought no $program"
	mkdir -p "$tree/run"
	{
		# shellcheck disable=SC2016
		printf '#!/bin/sh\nROOT="$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)"\n'
		# shellcheck disable=SC2016
		printf 'exec "$ROOT/%s" --library-path "$ROOT/%s" "$ROOT/%s"' "$loader" "$libs" "$binary"
		for d in "$@"; do
			printf ' "%s"' "${d//ROOT/\$ROOT}"
		done
		# shellcheck disable=SC2016
		printf ' "$@"\n'
	} >"$tree/run/$program"
	chmod 755 "$tree/run/$program"

	"$tree/run/$program" --version >/dev/null || die "$name does not start"
	: >"$tree/.complete"
	rm -rf "$root"
	mv "$tree" "$root"
}

mkdir -p "$servers"
# One provisioning at a time; whoever waited finds the work done.
exec 9>"$servers/.lock"
flock 9
work="$(mktemp -d "$servers/.work.XXXXXX")"

if [ "$only" = demo ]; then
	install_packages mariadb-server
else
	# The race detector and the checker of sync/model need a C compiler; any will do.
	compiler=(gcc libc6-dev)
	! command -v gcc >/dev/null || compiler=()
	install_packages mariadb-server memcached libmemcached-tools redis-server spin "${compiler[@]}"
	unpack mysql-9.7 mysqld mysql-server \
		--no-defaults --basedir=ROOT/usr --lc-messages-dir=ROOT/usr/share/mysql \
		--plugin-dir=ROOT/usr/lib/mysql/plugin --character-sets-dir=ROOT/usr/share/mysql/charsets \
		--secure-file-priv=NULL --mysqlx=OFF
	unpack mariadb-11.8 mariadbd mariadb-server \
		--no-defaults --basedir=ROOT/usr --lc-messages-dir=ROOT/usr/share/mariadb \
		--plugin-dir=ROOT/usr/lib/mysql/plugin --character-sets-dir=ROOT/usr/share/mariadb/charsets
	unpack memcached-1.6.45 memcached memcached
fi

mariadbd="$(command -v mariadbd || echo /usr/sbin/mariadbd)"
version() { printf '%-18s %s\n' "$1" "$("${@:2}" 2>/dev/null | head -n 1)"; }
version mariadb-10.11 "$mariadbd" --no-defaults --version
if [ "$only" = all ]; then
	version mysql-9.7 "$servers/mysql-9.7/run/mysqld" --version
	version mariadb-11.8 "$servers/mariadb-11.8/run/mariadbd" --version
	version memcached memcached --version
	version memcached-1.6.45 "$servers/memcached-1.6.45/run/memcached" --version
	version libmemcached dpkg-query -W -f '${Version}' libmemcached-tools
	version redis redis-server --version
fi
