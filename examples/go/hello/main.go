// Hello writes, reads and scans some objects.
//
//	thunderhead dev &
//	go run ./hello thunderhead://localhost
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"thunderhead.dev/thunderhead"
)

func main() {
	url := "thunderhead://localhost"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	db, err := thunderhead.Open(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close()
	users, err := db.Table(ctx, "users", thunderhead.CreateTable())
	if err != nil {
		return err
	}

	version, err := users.Put(ctx, "ada", []byte("analyst"))
	if err != nil {
		return err
	}
	fmt.Println("wrote version", version)

	// This write happens only if the object still has the version that was written above.
	_, err = users.Put(ctx, "ada", []byte("countess"), thunderhead.IfVersion(version))
	var condition *thunderhead.ConditionError
	switch {
	case errors.As(err, &condition):
		fmt.Println("another program was faster; the version is", condition.Version)
	case errors.Is(err, thunderhead.ErrUnknown):
		fmt.Println("the write may have happened; the read below tells")
	case err != nil:
		return err
	}

	v, err := users.Get(ctx, "ada")
	if err != nil {
		return err
	}
	fmt.Println("ada is a", v)

	missing, err := users.Get(ctx, "charles")
	if err != nil {
		return err
	}
	fmt.Println("charles exists:", missing.Exists())

	for object, err := range users.Scan(ctx) {
		if err != nil {
			return err
		}
		fmt.Printf("%s (version %d)\n", object.Key, object.Version)
	}
	return nil
}
