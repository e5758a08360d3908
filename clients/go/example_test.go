package thunderhead_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"thunderhead.dev/thunderhead"
)

func Example() {
	ctx := context.Background()
	db, err := thunderhead.Open(ctx, "thunderhead://localhost")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	users, err := db.Table(ctx, "users", thunderhead.CreateTable())
	if err != nil {
		log.Fatal(err)
	}
	if _, err := users.Put(ctx, "ada", []byte("analyst")); err != nil {
		log.Fatal(err)
	}
	v, err := users.Get(ctx, "ada")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Exists(), v)
}

func ExampleOpen() {
	// Three coordinators. Calls whose context has no deadline end after two seconds.
	db, err := thunderhead.Open(context.Background(), "thunderhead://h1,h2,h3:7071/?deadline=2s")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
}

func ExampleTable_Put() {
	var users *thunderhead.Table
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// The write happens only if the object has not changed since it was read.
	v, err := users.Get(ctx, "ada")
	if err != nil {
		log.Fatal(err)
	}
	_, err = users.Put(ctx, "ada", []byte("countess"), thunderhead.IfVersion(v.Version))
	var condition *thunderhead.ConditionError
	switch {
	case errors.As(err, &condition):
		fmt.Println("another writer was faster, the version is", condition.Version)
	case errors.Is(err, thunderhead.ErrUnknown):
		fmt.Println("read the object to find out whether it was written")
	case err != nil:
		log.Fatal(err)
	}
}

func ExampleTable_Increment() {
	var pages *thunderhead.Table
	// Each increment happens exactly once, even if the client has to send it again.
	visits, _, err := pages.Increment(context.Background(), "visits", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(visits)
}

func ExampleTable_PutMany() {
	var users *thunderhead.Table
	entries := []thunderhead.Entry{
		{Key: "bob", Value: []byte("builder")},
		{Key: "eve", Value: []byte("listener"), If: thunderhead.IfAbsent()},
	}
	_, err := users.PutMany(context.Background(), entries)
	var many *thunderhead.ManyError
	if errors.As(err, &many) {
		for i, err := range many.Errors {
			if err != nil {
				fmt.Println(entries[i].Key, err)
			}
		}
	}
}

func ExampleTable_Scan() {
	var users *thunderhead.Table
	for object, err := range users.Scan(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(object.Key, object.Version, object)
	}
}
