// Package natsstore keeps records in a stream of NATS JetStream 2.11 or later, on one
// server or in a cluster.
//
// A record is the one message of its subject. Every change is stored only if the record is
// still the one that was read. The stream gives each message its time, from which leases
// and keeps are counted; the clock of the calling process does not matter. A message stays
// for an hour after its record has expired: until then it preserves the fence, so the fence
// of a command increases even if the servers' clocks are set back by up to an hour.
//
// # What a record survives
//
// Records survive a crash of the client and of the servers' processes. Whether they survive
// a power failure depends on sync_interval, a setting of the servers: by default they write
// to the disk every two minutes, and what was acknowledged since may be lost, in a cluster
// too, if power fails for most servers at once or for one that then takes part in an
// election. Commands whose records are lost may run again. With sync_interval: always,
// nothing is lost. Open rejects any other value, and a server that does not show it
// (see Config.System), unless the risk is accepted.
//
// Config.Replicas is how many servers of a cluster keep the records: 1 (the default), 3 or
// 5. With 3, one server may be lost, and with 5, two.
//
// # A server that has forgotten its records
//
// Migrate makes the stream, and one message in it that stays. If the servers have lost
// their data, or somebody deleted the stream, they are missing, and every claim of a new
// command fails with ErrForgotten until Migrate is called again. Otherwise commands that had
// run would run again. Therefore, call Migrate when you set up the servers and not at every
// start of your program.
//
// A stream that is restored from a backup has that message. Commands that ran after the
// backup may then run again.
//
// # Leaders
//
// One server of a cluster leads the stream and answers all calls. When it fails, the others
// elect another within some seconds; calls wait for it, at most Config.Timeout.
//
// A leader that is cut off from the other servers goes on answering for up to 20 seconds
// to clients that reach only that server. It can't store anything, so that it gives no
// command to anyone, and no hold is lost by what it says. But Lookup, List and Wait may show
// what a record was before, and a claim may replay a response that somebody has deleted
// meanwhile.
//
// The clocks of the servers should be synchronized, to less than Config.ClockSkew. If they
// differ by more, a lease may be taken over early after the leader has changed, by the
// difference.
//
// # Limits
//
// A record must fit into one message: the server's max_payload (1 MiB by default) and the
// stream's max_msg_size limit the result, the steps and the ID together. What is larger is
// an onlyonce.ErrTooLarge.
//
// A stream that is full takes nothing: claims fail, and so does recording the outcomes of
// commands that have begun. They are unknown, and may run again once there is room.
// Therefore, Open rejects a stream with a limit (max_bytes, max_msgs), unless the risk is
// accepted. The account's storage limit and a full disk do the same, but Open can't see
// them: watch them.
//
// A user of the server needs these permissions, for the default name of the stream: to
// publish to onlyonce.records.>, onlyonce.ended.* and $JS.API.STREAM.*.onlyonce,
// $JS.API.STREAM.MSG.GET.onlyonce, $JS.API.CONSUMER.> (for List), and to subscribe to
// onlyonce.ended.* and _INBOX.>.
package natsstore
