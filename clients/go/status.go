package thunderhead

// A Status is the outcome of a request as a server names it. A number never changes its meaning.
type Status uint16

// The statuses that a client can meet.
const (
	statusOK                   Status = 0
	statusUnknownOpcode        Status = 1
	statusMalformed            Status = 2
	statusDeadlineExceeded     Status = 3
	statusBusy                 Status = 4
	statusMoved                Status = 5
	statusReplyTooLong         Status = 6
	statusConditionFailed      Status = 7
	statusNoSpace              Status = 8
	statusNotFound             Status = 9
	statusKeyEmpty             Status = 10
	statusKeyTooLong           Status = 11
	statusValueTooLong         Status = 12
	statusNotANumber           Status = 13
	statusOverflow             Status = 14
	statusStale                Status = 15
	statusVersionsExhausted    Status = 16
	statusNotLeader            Status = 17
	statusLeaseEnded           Status = 18
	statusTableExists          Status = 19
	statusNoSuchTable          Status = 20
	statusBadName              Status = 21
	statusNoServers            Status = 22
	statusWrongCluster         Status = 23
	statusDeposed              Status = 24
	statusMetastoreUnavailable Status = 25
	statusBadRange             Status = 26
	statusNoSuchServer         Status = 27
	statusRefused              Status = 28
	statusInProgress           Status = 29
	statusNotMigrated          Status = 30
	statusOtherLife            Status = 31
	statusLeadershipLost       Status = 32
	statusAwaitingReplicas     Status = 33
	statusAwaitingLease        Status = 34
	statusAwaitingMemory       Status = 35
	statusOldLeader            Status = 36
	statusServerIsUp           Status = 40
	statusBadSetting           Status = 41
	statusOldProgram           Status = 42
	statusMayBeNeeded          Status = 43
	statusOutdated             Status = 44
	statusUnknownServer        Status = 45
	statusGrouped              Status = 46
	statusOldFormat            Status = 47
	statusBadTimeToLive        Status = 48
	statusTableFull            Status = 49
	statusBadOptions           Status = 50
)

// nextStep is the caller's next step after a status.
type nextStep uint8

const (
	// stepReport reports the status: the same request would give it again.
	stepReport nextStep = iota
	// stepTake takes the answer.
	stepTake
	// stepRefresh fetches the map, or finds the leader, and sends the request to the right place.
	stepRefresh
	// stepWait sends the request again to the same place, after the time that the reply names.
	stepWait
)

type statusInfo struct {
	next nextStep
	text string
}

var statuses = map[Status]statusInfo{
	statusOK:                   {stepTake, "done"},
	statusUnknownOpcode:        {stepReport, "the server does not know this operation; check that the address is a coordinator's, or upgrade the server"},
	statusMalformed:            {stepReport, "the request is malformed; client and server may be of different versions"},
	statusDeadlineExceeded:     {stepReport, "the deadline passed before the server was done"},
	statusBusy:                 {stepWait, "the server is busy; try again later"},
	statusMoved:                {stepRefresh, "another server is responsible for this"},
	statusReplyTooLong:         {stepReport, "the answer is longer than the client accepts; ask for less"},
	statusConditionFailed:      {stepReport, "the condition does not hold"},
	statusNoSpace:              {stepWait, "the server has no room; delete something or add room"},
	statusNotFound:             {stepReport, "there is no such object"},
	statusKeyEmpty:             {stepReport, "the key is empty; give at least one byte"},
	statusKeyTooLong:           {stepReport, "the key is too long; at most 64 KiB are allowed"},
	statusValueTooLong:         {stepReport, "the value is too long; at most 1 MiB is allowed"},
	statusNotANumber:           {stepReport, "the object is no number of this kind: it was written as bytes, or one of the two is a whole number and the other is not"},
	statusOverflow:             {stepReport, "the sum is too large for a number of 64 bits; the object was not changed"},
	statusStale:                {stepReport, "the client has acknowledged the answer to this update before"},
	statusVersionsExhausted:    {stepReport, "no version is left for this object; use another key"},
	statusNotLeader:            {stepRefresh, "this coordinator does not lead; ask the others"},
	statusLeaseEnded:           {stepReport, "the client's lease has expired because the client was silent for too long; open a new one"},
	statusTableExists:          {stepReport, "there is a table of this name already"},
	statusNoSuchTable:          {stepReport, "there is no table of this name; create it first, or check the name"},
	statusBadName:              {stepReport, "a table's name has 1 to 255 bytes and no control characters"},
	statusNoServers:            {stepWait, "no server can take it; start one"},
	statusWrongCluster:         {stepReport, "this belongs to another cluster"},
	statusDeposed:              {stepReport, "the cluster has declared this server crashed; it must enlist again"},
	statusMetastoreUnavailable: {stepWait, "the coordinator cannot reach its metastore; configuration changes wait, data is served"},
	statusBadRange:             {stepReport, "no tablet has this range, or it cannot be split there; `thunderhead table show` lists them"},
	statusNoSuchServer:         {stepReport, "there is no such server; `thunderhead status` lists them"},
	statusRefused:              {stepReport, "the backup refuses the replica"},
	statusInProgress:           {stepWait, "another operation on it is in progress; try again later"},
	statusNotMigrated:          {stepReport, "the tablet stays where it was: it could not be moved; `thunderhead status` says why"},
	statusOtherLife:            {stepWait, "this is meant for another server, or for another generation of this one; fetch the list of servers again"},
	statusLeadershipLost:       {stepRefresh, "the coordinator lost its leadership while it worked on this; it may have been done or not"},
	statusAwaitingReplicas:     {stepWait, "the server waits for its backups to confirm; `thunderhead status` shows which servers are missing"},
	statusAwaitingLease:        {stepWait, "the server waits for a coordinator to confirm the client's lease; check that a coordinator runs"},
	statusAwaitingMemory:       {stepWait, "the server is freeing memory; delete something or add servers if this lasts"},
	statusOldLeader:            {stepReport, "a newer coordinator has taken over since this was sent"},
	statusServerIsUp:           {stepReport, "the server is up; stop it first, and wait until `thunderhead status` says that it is down"},
	statusBadSetting:           {stepReport, "the cluster cannot have this setting: min_replicas is at least 1 and at most its number of replicas, and a format is never older than the one in force"},
	statusOldProgram:           {stepReport, "the cluster was switched to a newer format than this program knows; upgrade the program"},
	statusMayBeNeeded:          {stepReport, "the server may have replicas that a recovery lacks; `thunderhead status` shows the recovery"},
	statusOutdated:             {stepReport, "the settings were changed meanwhile; look at them with `thunderhead status`, then try again"},
	statusUnknownServer:        {stepReport, "the coordinator has never given out the id of this server: its metastore may be an older copy"},
	statusGrouped:              {stepReport, "this table and others always lie together on one shard: it cannot be split, moved alone or lie beside a table that is spread"},
	statusOldFormat:            {stepReport, "this needs a newer format of the cluster; `thunderhead status` says when `thunderhead cluster set format` can switch it on"},
	statusBadTimeToLive:        {stepReport, "a time to live has at least one millisecond"},
	statusTableFull:            {stepReport, "the table has as many bytes as its option `max` allows; delete objects"},
	statusBadOptions:           {stepReport, "a table cannot have these options: only a cache can reserve memory, not more than its maximum, and all reservations must fit into the memory of the servers"},
}

// String returns a sentence for people.
func (s Status) String() string {
	if info, ok := statuses[s]; ok {
		return info.text
	}
	return "the server answered with a status that this client does not know; upgrade the client"
}

// next returns the caller's next step, and whether the status is known.
func (s Status) next() (nextStep, bool) {
	info, ok := statuses[s]
	return info.next, ok
}

// isDefinite tells whether a refusal proves that no attempt of the update was done. A server gives
// these refusals only after it has looked for the record of the update, or every server gives them
// for the same key and value. Other refusals come from servers that may not know the record.
func (s Status) isDefinite() bool {
	switch s {
	case statusKeyEmpty, statusKeyTooLong, statusValueTooLong, statusOverflow, statusVersionsExhausted,
		statusConditionFailed, statusNotANumber:
		return true
	}
	return false
}

// An obstacle is the reason why an operation was not done in time.
type obstacle uint8

const (
	obstacleNoAnswer obstacle = iota
	obstacleNoMap
	obstacleNoSpace
	obstacleBusy
	obstacleNoCoordinator
	obstacleReplicas
	obstacleLease
	obstacleMemory
	obstacleNoOwner
	obstacleNoLeader
	obstacleInProgress
	obstacleOtherCluster
)

// obstacles has the obstacles. code is the number of an error that is [ErrTimeout] because of it; the
// clients of all languages have the same numbers.
var obstacles = [...]struct {
	code int
	text string
}{
	obstacleNoAnswer:      {4, "no server answered; check that the cluster runs and can be reached"},
	obstacleNoMap:         {5, "no coordinator said which server has the object; check that a coordinator runs"},
	obstacleNoSpace:       {6, "the server has no memory left; delete objects or add servers"},
	obstacleBusy:          {7, "the server is too busy; send fewer requests, or set a longer deadline"},
	obstacleNoCoordinator: {9, "no coordinator answers; check the addresses and that a coordinator runs"},
	obstacleReplicas:      {13, statuses[statusAwaitingReplicas].text},
	obstacleLease:         {14, statuses[statusAwaitingLease].text},
	obstacleMemory:        {15, statuses[statusAwaitingMemory].text},
	obstacleNoOwner:       {16, "no server has the object at the moment: it is being recovered or moved; `thunderhead status` shows the progress"},
	obstacleNoLeader:      {17, statuses[statusLeadershipLost].text},
	obstacleInProgress:    {19, statuses[statusInProgress].text},
	obstacleOtherCluster:  {18, "another cluster is at the addresses of this client's cluster; check them, or open a new client for that cluster"},
}

func (o obstacle) String() string { return obstacles[o].text }

// obstacleOf returns the obstacle that a status names. The status is of a server that refuses an
// operation and lets the client try again.
func obstacleOf(s Status) obstacle {
	switch s {
	case statusNoSpace:
		return obstacleNoSpace
	case statusAwaitingReplicas:
		return obstacleReplicas
	case statusAwaitingLease:
		return obstacleLease
	case statusAwaitingMemory:
		return obstacleMemory
	case statusLeadershipLost:
		return obstacleNoLeader
	case statusMoved:
		return obstacleNoOwner
	case statusInProgress:
		return obstacleInProgress
	}
	return obstacleBusy
}
