package thunderhead

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Every error of an operation belongs to exactly one of two families. Test them with [errors.Is]
// before anything else: they decide whether a program may simply repeat the call.
var (
	// ErrNotDone means that the call changed nothing. A program may repeat it.
	ErrNotDone = errors.New("nothing was done")
	// ErrUnknown means that the change may have been done or not. Read the object before you
	// repeat the call.
	ErrUnknown = errors.New("the change may have been done or not; read the object before you repeat the call")
)

// The reasons of errors, for [errors.Is]. The comment of each says the next step.
var (
	// ErrCondition: the condition of an update does not hold. Read the object again and decide
	// anew. A [*ConditionError] has the version that the object has.
	ErrCondition = errors.New("the condition does not hold; read the object again and decide anew")
	// ErrNoSuchTable: there is no table of this name, or the table of a [Table] was dropped. Create
	// it with [DB.CreateTable], or open it with [CreateTable].
	ErrNoSuchTable = errors.New("there is no such table; create it first, or check the name")
	// ErrTableExists: there is a table of this name already. Open it with [DB.Table].
	ErrTableExists = errors.New("there is a table of this name already; open it with Table")
	// ErrBadName: no table can have this name.
	ErrBadName = errors.New(statuses[statusBadName].text)
	// ErrKeyEmpty: the key has no bytes.
	ErrKeyEmpty = errors.New(statuses[statusKeyEmpty].text)
	// ErrKeyTooLong: the key has more than 64 KiB, or more than an eighth of a segment.
	ErrKeyTooLong = errors.New(statuses[statusKeyTooLong].text)
	// ErrValueTooLong: the value has more than 1 MiB, or more than an eighth of a segment. Split
	// it over several objects.
	ErrValueTooLong = errors.New(statuses[statusValueTooLong].text)
	// ErrNotANumber: the object to increment was written as bytes, or as the other kind of number.
	// Write it with PutInt or PutFloat. A [*NotANumberError] has the version that the object has.
	ErrNotANumber = errors.New(statuses[statusNotANumber].text)
	// ErrOverflow: the sum does not fit into 64 bits.
	ErrOverflow = errors.New(statuses[statusOverflow].text)
	// ErrBadRange: no tablet begins there, or the tablet cannot be split there.
	ErrBadRange = errors.New(statuses[statusBadRange].text)
	// ErrTimeout: the deadline passed first. The text of the error names the obstacle. The error
	// also is [context.DeadlineExceeded].
	ErrTimeout = errors.New("the deadline passed")
	// ErrClosed: the client was closed. Open another one.
	ErrClosed = errors.New("the client is closed; open another one")
	// ErrWrongCluster: the address belongs to another cluster. Check the address, or open a client
	// without the id of a cluster.
	ErrWrongCluster = errors.New("this belongs to another cluster; check the address and the id of the cluster")
	// ErrNotThunderhead: the program at the address does not speak this protocol, or no version of
	// it that this client knows.
	ErrNotThunderhead = errors.New("the program at this address does not speak this protocol; check the host and the port")
	// ErrURL: the URL does not name a cluster.
	ErrURL = errors.New("the URL does not name a cluster")
	// ErrArgument: an argument makes no sense. The text of the error says which.
	ErrArgument = errors.New("an argument is wrong")
	// ErrProtocol: the client does not understand the answer. Upgrade the client.
	ErrProtocol = errors.New("the client does not understand the answer of the server; upgrade the client")
	// ErrRefused: the server or the coordinator refused the request for another reason, which the
	// text of the error has.
	ErrRefused = errors.New("the request was refused")
)

// Error is the error of a call that failed. [errors.Is] tells its family ([ErrNotDone] or
// [ErrUnknown]) and its reason (such as [ErrCondition] or [ErrTimeout]).
type Error struct {
	// Op is the call, such as "put".
	Op string
	// Table is the name of the table, if the call concerns one.
	Table string
	// Unknown tells whether the change may have been done. If not, nothing was done.
	Unknown bool
	// Status is the status with which the server refused the request; 0 if no server did.
	Status Status

	reason   error
	obstacle obstacle
	text     string
	cause    error
}

// Error returns a sentence that says the reason and the next step.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("thunderhead: ")
	b.WriteString(e.Op)
	if e.Table != "" {
		fmt.Fprintf(&b, " %q", e.Table)
	}
	b.WriteString(": ")
	if e.Unknown {
		b.WriteString("the change may have been done or not, read the object before you repeat the call: ")
	}
	if e.text != "" {
		b.WriteString(e.text)
	} else {
		b.WriteString(e.reason.Error())
	}
	return b.String()
}

// Is tells whether the error has this reason or belongs to this family.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrNotDone:
		return !e.Unknown
	case ErrUnknown:
		return e.Unknown
	}
	return target == e.reason
}

// Unwrap returns the cause, such as the error of a context.
func (e *Error) Unwrap() error { return e.cause }

// Timeout tells whether the deadline passed, as [net.Error] has it.
func (e *Error) Timeout() bool { return e.reason == ErrTimeout }

// The numbers of errors that have neither a status nor an obstacle.
const (
	codeConditionFailed = 1
	codeNoSuchTable     = 2
	codeProtocol        = 3
	codeUnknown         = 8
	codeClosed          = 12
	codeCanceled        = 20
	// codeStatus is added to the number of a status.
	codeStatus = 1000
)

// Code returns a stable number, for logs and for comparisons across languages: the clients of all
// languages have the same numbers. A refusal has 1000 and its [Status]. 0 stands for errors that
// only this client has, such as a wrong argument.
func (e *Error) Code() int {
	switch {
	case e.reason == ErrProtocol:
		return codeProtocol
	case e.Unknown:
		return codeUnknown
	case e.Status == statusConditionFailed:
		return codeConditionFailed
	case e.Status != 0:
		return codeStatus + int(e.Status)
	}
	switch e.reason {
	case ErrTimeout:
		return obstacles[e.obstacle].code
	case ErrNoSuchTable:
		return codeNoSuchTable
	case ErrClosed:
		return codeClosed
	case context.Canceled:
		return codeCanceled
	}
	return 0
}

// ConditionError is in the chain of every error that is [ErrCondition].
type ConditionError struct {
	// Version is the version that the object has; 0 if it does not exist.
	Version Version
}

// Error returns a sentence with the version.
func (e *ConditionError) Error() string {
	if e.Version == 0 {
		return "the condition does not hold: the object does not exist"
	}
	return fmt.Sprintf("the condition does not hold: the version of the object is %d; read it again and decide anew", e.Version)
}

// NotANumberError is in the chain of every error that is [ErrNotANumber].
type NotANumberError struct {
	// Version is the version that the object has.
	Version Version
}

// Error returns a sentence with the version.
func (e *NotANumberError) Error() string {
	return fmt.Sprintf("the object with the version %d is no number of this kind; write it with PutInt or PutFloat", e.Version)
}

// ManyError is the error of a call with many operations of which some failed. [errors.Is] is true
// for each family and reason of its errors: with both [ErrNotDone] and [ErrUnknown] the call failed
// in parts of both kinds.
type ManyError struct {
	// Errors has the error of each operation, in the order of the call; nil for each that was done.
	Errors []error
}

// Error returns the number of failures and the first one.
func (e *ManyError) Error() string {
	failed, first := 0, error(nil)
	for _, err := range e.Errors {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	return fmt.Sprintf("%v (the first of %d failures in %d operations)", first, failed, len(e.Errors))
}

// Unwrap returns the errors.
func (e *ManyError) Unwrap() []error {
	var errs []error
	for _, err := range e.Errors {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// failure is the error of an operation before the names of the call and of the table are known.
type failure struct {
	reason  error
	unknown bool
	status  Status
	// obstacle is that of [ErrTimeout].
	obstacle obstacle
	text     string
	cause    error
}

func (f *failure) in(op, table string) *Error {
	return &Error{
		Op: op, Table: table, Unknown: f.unknown, Status: f.status,
		reason: f.reason, obstacle: f.obstacle, text: f.text, cause: f.cause,
	}
}

func timedOut(o obstacle, unknown bool) *failure {
	text := "the call timed out and was not done: " + o.String()
	if unknown {
		text = o.String()
	}
	return &failure{
		reason: ErrTimeout, unknown: unknown, obstacle: o, text: text, cause: context.DeadlineExceeded,
	}
}

func canceled(err error, unknown bool) *failure {
	if errors.Is(err, context.DeadlineExceeded) {
		return timedOut(obstacleNoAnswer, unknown)
	}
	return &failure{reason: context.Canceled, unknown: unknown, text: "the caller stopped waiting", cause: err}
}

func incomprehensible(unknown bool) *failure {
	return &failure{reason: ErrProtocol, unknown: unknown}
}

func conditionFailed(version Version) *failure {
	cause := &ConditionError{Version: version}
	return &failure{reason: ErrCondition, status: statusConditionFailed, text: cause.Error(), cause: cause}
}

func notANumber(version Version) *failure {
	f := refusedWith(statusNotANumber)
	f.cause = &NotANumberError{Version: version}
	return f
}

// droppedTable returns the failure of an operation on a table that the map no longer has.
func droppedTable() *failure {
	return &failure{reason: ErrNoSuchTable, text: ErrNoSuchTable.Error()}
}

// refusedWith returns the failure for a final refusal.
func refusedWith(s Status) *failure {
	f := &failure{reason: ErrRefused, status: s, text: s.String()}
	switch s {
	case statusKeyEmpty:
		f.reason = ErrKeyEmpty
	case statusKeyTooLong:
		f.reason = ErrKeyTooLong
	case statusValueTooLong:
		f.reason = ErrValueTooLong
	case statusNotANumber:
		f.reason = ErrNotANumber
	case statusOverflow:
		f.reason = ErrOverflow
	case statusTableExists:
		f.reason, f.text = ErrTableExists, ErrTableExists.Error()
	case statusNoSuchTable:
		f.reason, f.text = ErrNoSuchTable, ErrNoSuchTable.Error()
	case statusBadName:
		f.reason = ErrBadName
	case statusBadRange:
		f.reason = ErrBadRange
	case statusWrongCluster:
		f.reason, f.text = ErrWrongCluster, ErrWrongCluster.Error()
	}
	return f
}
