// Package natsstore keeps records in a stream of NATS JetStream 2.11 or later, on one
// server or in a cluster.
//
// A record is the only message of its subject. A change is stored only if the record is
// still the one that was read. Leases and keeps are counted from the time that the server
// gives each message; the clock of the calling process does not matter. A message stays for
// an hour after its record has expired. Until then, it preserves the fence, so that the
// fence of a command increases even if the servers' clocks are set back by up to an hour.
//
// # What a record survives
//
// Records survive a crash of the client and of the servers' processes. Whether they survive
// a power failure depends on sync_interval, a setting of the servers. With sync_interval:
// always, nothing is lost. By default, servers write to the disk every two minutes, and
// a power failure may lose what was acknowledged since. In a cluster, this happens if power
// fails for most servers at once, or for one that then takes part in an election. Commands
// whose records are lost may run again. Unless the risk is accepted, Open rejects any
// other value than always, and servers that do not show the value (see Config.System).
//
// Config.Replicas is how many servers of a cluster keep the records: 1 (the default), 3 or
// 5. With 3, one server may be lost, and with 5, two. A server that comes back with an empty
// disk, or with an old copy of it, counts as lost until it has caught up with the others: it
// may vote, and take from a majority what it no longer has. Therefore, stop no other
// server until then, and never restore the disks of several servers one after the other.
//
// # A server that has lost its records
//
// Migrate creates the stream, and one message in it that stays. If the servers have lost
// their data, or somebody deleted the stream, the message is missing, and every claim of a
// new command fails with ErrForgotten until Migrate is called again. Without this check,
// commands that had already run would run again. Therefore, call Migrate when you set up the
// servers, not at every start of your program.
//
// A stream that is restored from a backup contains that message. Commands that ran after
// the backup was made may then run again.
//
// # Servers of one cluster
//
// All servers that the client names must show the same stream: in two streams, a command would
// run twice. Open and Migrate connect to each server that responds, and compare when the stream
// was created. They do not see a server that is down, or one that a cluster has advertised. The
// stream is therefore verified again whenever the client has connected again, before the next
// request. A response that comes on another connection than its request was sent on does not
// count. While the client is connected to a server that shows another stream, calls fail with
// ErrOtherCluster.
//
// A store that was idle while the stream was deleted, and created again by Migrate, notices that
// only when a call reads a record, as that of a repeat and Lookup do. From then on, its calls fail
// with ErrOtherCluster until it is opened again. Before, it claims and settles in the new stream,
// possibly also with a hold of the former one. Therefore, restart all programs after a stream was
// replaced.
//
// # Leaders
//
// One server of a cluster leads the stream and responds to all calls. If it fails, the
// others elect another leader within some seconds. Calls wait for it, but at most for
// Config.Timeout.
//
// A leader that is cut off from the other servers continues to respond for up to 20 seconds
// to clients that reach only that server. It cannot store anything, so it grants no claim,
// and no hold is lost because of what it returns. However, Lookup, List and Wait may show
// an earlier state of a record, and a claim may replay a response that somebody has deleted
// in the meantime.
//
// The clocks of any two servers should differ by less than Config.ClockSkew. If they differ
// by more, a lease may be taken over early after a change of the leader, by as much as the
// difference exceeds it.
//
// # Clients
//
// By default, a client of NATS closes its connection for good once no server has responded for
// two minutes, or once a server has rejected its login twice, for example while a password is
// being changed. All calls then fail with nats.ErrConnectionClosed until the program is
// restarted. Therefore, connect with nats.MaxReconnects(-1) and nats.IgnoreAuthErrorAbort, as the
// options that ParseURL returns do.
//
// # Leafnodes
//
// A message that is published on one side of a leafnode reaches the other side, too. If
// both have a stream that takes the subjects of the store, each stores and confirms every
// message. The store accepts only confirmations from the JetStream domain of its stream, so
// nothing is taken for stored that is not, but calls may fail. Therefore, give each such
// stream another name (Config.Stream), and each side a domain. Without domains, the store
// cannot tell the confirmations apart. Open and Diagnose send a message that no stream stores,
// and reject the servers if two streams respond to it, for which they wait a quarter of a second
// or longer. Open does not if the risk is accepted. They do not see a stream that is created, or
// joined by a leafnode, later.
//
// # Limits
//
// At most 8 calls of a process read a stored result at a time, fewer if max_payload exceeds
// 4 MiB. Otherwise, repeats of commands with large results would overrun the connection.
//
// A record must fit into one message: the server's max_payload (1 MiB by default) and the
// stream's max_msg_size limit the result, the steps and the ID together. A larger result is
// an onlyonce.ErrTooLarge.
//
// A stream that is full accepts nothing: claims fail, and the outcomes of commands that have
// begun cannot be recorded. These outcomes are unknown, and the commands may run again once
// there is room. Therefore, Open rejects a stream with a limit (max_bytes, max_msgs), unless
// the risk is accepted. It also rejects one with discard_new_per_subject, which takes new
// commands but never an outcome. The account's storage limit and a full disk have the same
// effect as a full stream, but Open cannot see them: monitor them.
//
// With the default name of the stream, the user of the server needs permission to publish
// to onlyonce.records.>, onlyonce.ended.*, $JS.API.STREAM.*.onlyonce,
// $JS.API.STREAM.MSG.GET.onlyonce and, for List, $JS.API.CONSUMER.>, and to subscribe to
// onlyonce.ended.* and _INBOX.>. Open finds out whether it may do what every command needs:
// all of these but onlyonce.ended.* and $JS.API.CONSUMER.>.
package natsstore
