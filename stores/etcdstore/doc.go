// Package etcdstore keeps records in etcd 3.5.14 or later, on one member or in a cluster.
//
// Every change of a record is one transaction of etcd that is stored only if the record is
// still the one that was read. Every read is linearizable: it shows what most members agree
// on. A call whose response was lost reads the record again, which shows by its owner and
// its fence whether the call has taken effect.
//
// # What a record survives
//
// etcd writes each change to the disks of most members before it confirms it. Records
// survive a crash of the client, and of all members' processes and machines, and the loss
// of fewer than half of the members: of one of three, or of two of five. A cluster that is
// started with --unsafe-no-fsync loses records when a machine crashes, and etcd does not
// show that setting.
//
// A member that comes back with an empty disk, or with an old copy of it, has forgotten what
// it confirmed, and may still vote: it counts as lost until it has caught up. Remove such a
// member and add it again, as a learner at first.
//
// # Clocks
//
// etcd has no clock that a client can read, so the store keeps its own clock under a key,
// and the processes that use the store move it forward. It begins at the time of the process
// that called Migrate. From then on, it does not matter how the clock of any machine is set,
// or when it is set. Only the speed of the processes' monotonic clocks counts: a lease ends
// early only by as much as the clock of the process that takes over runs faster than that of
// the holder. The context of an attempt ends a quarter of a lease before the lease does, and
// a monotonic clock that runs a quarter faster than another is broken.
//
// A process adds to the clock the time that has passed since it read the clock. It never
// counts more than that, so leases and records end late rather than early: usually by milliseconds, and by
// at most about five seconds after other processes have been restarted. A process that
// starts while no other is running learns from the time to live of one of etcd's leases how
// much time has passed. A new leader of the cluster restarts that time to live, so the clock
// may then stay behind by the time before the election in which no process used the store,
// and leases and records last that much longer.
//
// The monotonic clock of a suspended machine may stop. A process notices that if its wall
// clock went on, or if another process has published the clock in between. If neither is so,
// because a virtual machine was paused with all of its clocks, the first leases that it
// begins may end early, by the length of the pause. A pause of less than an eighth of a
// lease, and of less than two seconds, is not noticed.
//
// # A cluster that has forgotten its records
//
// Migrate makes the key of the clock. If etcd has lost its data, or somebody deleted the
// store's keys, it is missing, and every call fails with ErrForgotten until Migrate is
// called again. Otherwise commands that had run would run again. Therefore, call Migrate
// when you set up etcd and not at every start of your program. A store that was idle from the
// loss until Migrate was called can't tell the cluster from another one, and fails with
// ErrOtherCluster until it is opened again.
//
// A cluster that is restored from a snapshot has that key. Commands that ran after the
// snapshot may then run again. Restart all processes that use the store after a restore,
// or restore with --bump-revision and --mark-compacted.
//
// # Members of one cluster
//
// All endpoints of the client must be members of one cluster: in two clusters, a command would
// run twice. Open and Migrate compare the cluster IDs of all members that respond, and the key
// that Migrate has made, because clusters that are started with the same peer URLs have the same
// ID. A member that responds later is compared then: a response from another cluster does not
// count, and the request is sent again. If only members of another cluster respond until the
// time of a call is over, the call fails with ErrOtherCluster.
//
// # Leases of etcd
//
// etcd deletes the keys of a record at least an hour after the record has expired. Until
// then, they preserve the fence. The store attaches them to leases of etcd for that. Because
// a lease costs every member memory, records that stay for about as long share one: a
// process gives one lease to up to 5,000 changes, over at most an eighth of the time that
// the records stay. At its end, etcd deletes its keys in one step. Sharing costs disk
// space: a record's keys stay for up to one and a half times as long as the record and the hour.
// Nobody else may revoke such a lease: etcd deletes its records with it, the store cannot detect
// that, and their commands can run again.
//
// # Limits
//
// A record must fit into one request: the members' max-request-bytes (1.5 MiB by default)
// limit the result and the steps together, and so does the client's MaxCallSendMsgSize
// (2 MiB by default). A larger one is an onlyonce.ErrTooLarge. An ID and its fingerprint
// together have at most 64 KiB.
//
// All records must fit into the members' quota-backend-bytes (2 GB by default). When it is
// reached, etcd raises the alarm NOSPACE, and claims and settlements fail until an operator
// has made space and disarmed the alarm. Nothing that is stored is lost, and stored
// responses are still replayed. But a command that was running then can't record its
// outcome.
//
// etcd keeps every old version of a key until it is compacted. Start the members with
// --auto-compaction-retention, such as 1h. Each command makes two versions.
//
// Waiters watch the records of one of 256 parts each. A store that has counted unresolved
// records once watches all. Watching costs little: it does not include results.
//
// A client of clientv3.New may wait for up to two minutes until it connects to a member again
// that was away for long, and does not notice that one has gone silent. The settings that
// ParseURL returns avoid both.
//
// With authentication, the client's user needs the permission to read and write all keys
// under the Prefix and a slash.
package etcdstore
