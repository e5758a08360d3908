package thunderhead

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	urlScheme   = "thunderhead://"
	defaultPort = 7070
	// hostsMax is the most coordinators in a URL, which bounds the work of resolving their names.
	hostsMax = 64
	// deadlineMax is the longest deadline. A longer one is more likely a mistake of units.
	deadlineMax = 366 * 24 * time.Hour
)

// A clusterURL is a URL of a cluster, taken apart:
//
//	thunderhead://HOST[:PORT][,HOST[:PORT]...]/[?deadline=TIME&cluster=ID&in_flight=N&polling=WAY]
//
// The hosts are the coordinators. All clients accept the same URLs, so this one also accepts
// settings that concern only others.
type clusterURL struct {
	hosts    []hostPort
	deadline time.Duration
	cluster  uint64
	inFlight int
}

// A hostPort is the name or the IP address of a host, and a port.
type hostPort struct {
	host string
	port uint16
}

func (h hostPort) String() string { return net.JoinHostPort(h.host, strconv.Itoa(int(h.port))) }

func badURL(format string, args ...any) *failure {
	return &failure{reason: ErrURL, text: fmt.Sprintf(format, args...)}
}

func parseURL(url string) (*clusterURL, *failure) {
	wrong := func(format string, args ...any) *failure {
		return badURL("%s; a URL looks like %shost:%d", fmt.Sprintf(format, args...), urlScheme, defaultPort)
	}
	url = strings.TrimSpace(url)
	if len(url) < len(urlScheme) || !strings.EqualFold(url[:len(urlScheme)], urlScheme) {
		return nil, wrong("the URL does not begin with %s", urlScheme)
	}
	place, settings, _ := strings.Cut(url[len(urlScheme):], "?")
	authority, path, _ := strings.Cut(place, "/")
	if path != "" {
		return nil, wrong("the URL has a path, %q, and a cluster has none", path)
	}
	if strings.Contains(authority, "@") {
		return nil, wrong("the URL names a user, and clusters have no users yet")
	}
	parsed := &clusterURL{}
	for _, text := range strings.Split(authority, ",") {
		host, err := parseHost(text)
		if err != nil {
			return nil, wrong("%v", err)
		}
		parsed.hosts = append(parsed.hosts, host)
	}
	if len(parsed.hosts) > hostsMax {
		return nil, wrong("the URL names more than %d coordinators", hostsMax)
	}
	known := map[string]bool{}
	for _, setting := range strings.Split(settings, "&") {
		if setting == "" {
			continue
		}
		name, value, _ := strings.Cut(setting, "=")
		if known[name] {
			return nil, badURL("the URL has the setting %q twice", name)
		}
		known[name] = true
		if f := parsed.set(name, value); f != nil {
			return nil, f
		}
	}
	return parsed, nil
}

func (u *clusterURL) set(name, value string) *failure {
	wrong := func(expected string) *failure {
		return badURL("the setting %s=%s of the URL is wrong: it must be %s", name, value, expected)
	}
	switch name {
	case "deadline":
		deadline, ok := parseTime(value)
		if !ok {
			return wrong("a time such as 500ms, 2s or 1m")
		}
		if deadline <= 0 || deadline > deadlineMax {
			return wrong("more than nothing and at most a year")
		}
		u.deadline = deadline
	case "cluster":
		base, digits := 10, value
		if rest, ok := strings.CutPrefix(value, "0x"); ok {
			base, digits = 16, rest
		}
		id, err := strconv.ParseUint(digits, base, 64)
		if err != nil || id == 0 {
			return wrong("the id of a cluster, which `thunderhead status` shows")
		}
		u.cluster = id
	case "in_flight":
		most, err := strconv.ParseUint(value, 10, 31)
		if err != nil || most == 0 {
			return wrong("a number above 0")
		}
		u.inFlight = int(most)
	case "polling":
		if value != "always" && value != "adaptive" && value != "never" {
			return wrong("always, adaptive or never")
		}
	default:
		return badURL("the URL has an unknown setting, %q; known are deadline, cluster, in_flight and polling", name)
	}
	return nil
}

// parseHost reads host, host:port, [::1] or [::1]:port.
func parseHost(text string) (hostPort, error) {
	name, port := text, ""
	hasPort := false
	if rest, ok := strings.CutPrefix(text, "["); ok {
		inner, behind, ok := strings.Cut(rest, "]")
		if !ok {
			return hostPort{}, fmt.Errorf("%q has no closing bracket", text)
		}
		if address, err := netip.ParseAddr(inner); err != nil || !address.Is6() {
			return hostPort{}, fmt.Errorf("%q is not an address of IPv6", inner)
		}
		name = inner
		if behind != "" {
			if port, hasPort = strings.CutPrefix(behind, ":"); !hasPort {
				return hostPort{}, fmt.Errorf("%q follows the bracket, and not a port", behind)
			}
		}
	} else {
		name, port, hasPort = strings.Cut(text, ":")
		if strings.Contains(port, ":") {
			return hostPort{}, fmt.Errorf("%q has several colons; write IPv6 as [::1]:%d", text, defaultPort)
		}
	}
	if name == "" {
		return hostPort{}, fmt.Errorf("the URL has an empty host")
	}
	isOdd := func(c rune) bool {
		return unicode.IsSpace(c) || unicode.IsControl(c) || strings.ContainsRune("?#%\\\"<>", c)
	}
	if strings.ContainsFunc(name, isOdd) {
		return hostPort{}, fmt.Errorf("%q is not the name of a host", name)
	}
	if !hasPort {
		return hostPort{name, defaultPort}, nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return hostPort{}, fmt.Errorf("%q is not a port (1 to 65535)", port)
	}
	return hostPort{name, uint16(number)}, nil
}

// parseTime reads a time: whole or decimal, with one unit.
func parseTime(text string) (time.Duration, bool) {
	at := strings.IndexFunc(text, func(c rune) bool { return c != '.' && (c < '0' || c > '9') })
	if at <= 0 {
		return 0, false
	}
	units := map[string]float64{"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
	seconds, ok := units[text[at:]]
	number, err := strconv.ParseFloat(text[:at], 64)
	if !ok || err != nil {
		return 0, false
	}
	seconds *= number
	if seconds > 2*deadlineMax.Seconds() {
		return 2 * deadlineMax, true
	}
	return time.Duration(seconds * float64(time.Second)), true
}
