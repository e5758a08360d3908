package thunderhead

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestCodesAreTheNumbersOfEveryLanguage has the numbers of `Error::code` in crates/client/src/error.rs.
func TestCodesAreTheNumbersOfEveryLanguage(t *testing.T) {
	for _, it := range []struct {
		code int
		f    *failure
	}{
		{0, badArgument("the context is nil")},
		{1, conditionFailed(7)},
		{2, droppedTable()},
		{3, incomprehensible(false)},
		{3, incomprehensible(true)},
		{4, timedOut(obstacleNoAnswer, false)},
		{4, canceled(context.DeadlineExceeded, false)},
		{5, timedOut(obstacleNoMap, false)},
		{6, timedOut(obstacleNoSpace, false)},
		{7, timedOut(obstacleBusy, false)},
		{8, timedOut(obstacleNoAnswer, true)},
		{8, timedOut(obstacleReplicas, true)},
		{8, canceled(context.Canceled, true)},
		{8, &failure{reason: ErrClosed, unknown: true}},
		{9, timedOut(obstacleNoCoordinator, false)},
		{12, &failure{reason: ErrClosed}},
		{13, timedOut(obstacleReplicas, false)},
		{14, timedOut(obstacleLease, false)},
		{15, timedOut(obstacleMemory, false)},
		{16, timedOut(obstacleNoOwner, false)},
		{17, timedOut(obstacleNoLeader, false)},
		{18, timedOut(obstacleOtherCluster, false)},
		{19, timedOut(obstacleInProgress, false)},
		{20, canceled(context.Canceled, false)},
		{1010, refusedWith(statusKeyEmpty)},
		{1013, notANumber(7)},
		{1020, refusedWith(statusNoSuchTable)},
		{1023, refusedWith(statusWrongCluster)},
	} {
		if err := it.f.in("put", "t"); err.Code() != it.code || len(err.Error()) < 30 {
			t.Errorf("the code %d instead of %d: %v", err.Code(), it.code, err)
		}
	}
}

func TestRefusalsBecauseOfAnObjectHaveItsVersion(t *testing.T) {
	var seen []identity
	f := startFake(t, script(&seen,
		func(r *request) { r.reply(statusConditionFailed, 0, words(9)) },
		func(r *request) { r.reply(statusNotANumber, 0, words(8)) }))
	_, table := openFake(t, f)
	_, err := table.Put(context.Background(), "k", nil, IfAbsent())
	var condition *ConditionError
	if !errors.Is(err, ErrCondition) || !errors.As(err, &condition) || condition.Version != 9 {
		t.Error(err)
	}
	_, _, err = table.Increment(context.Background(), "k", 1)
	var number *NotANumberError
	if !errors.Is(err, ErrNotANumber) || !errors.As(err, &number) || number.Version != 8 {
		t.Fatal(err)
	}
	if !strings.Contains(number.Error(), "version 8") {
		t.Error(number)
	}
}
