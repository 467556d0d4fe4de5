---------------------------- MODULE Publish ----------------------------
(* The protocol of headwater.publish: a change of several tables lands as one commit, or not at all. See README.md.

   A table is a sequence of versions, created if absent; its pin is the version that readers see. A writer notes what it
   is about to do, moves one head after the other, commits all pins at once, and deletes the note. Recoverers, and the
   writer itself when it has lost, finish or undo what a note tells of.

   Each action is one request to the store, or a decision on its answer. Between any two an actor may stall, for ever or
   until long after its lease. *)

EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Recoverers,   \* processes that sweep, each as often as it likes
          Scenario,     \* who writes what
          Mortal,       \* changes whose writer may die, or stall past its lease
          Faults,       \* what the world may do
          Flaws         \* which rules are left out

FlawNames == {"SweepIgnoresLeases", "UnmovedIsNotOccupied", "RecovererForgetsReads", "CommitForgetsReads",
              "LoserLeavesItsHeads", "LoserReportsFirst", "PublishedIsUndone", "LoserAlwaysUndoes", "UndoesFirst",
              "LogAskedFirst", "HeadBeforeNote", "NoteDeletedBeforePublish", "RestoresLookForeign",
              "UnknownIsFailure", "UnknownIsSuccess", "TableByTable", "BackIsKept", "LostPlaceIsForeign", "ToldTwice",
              "CommitBeforeHeads"}
ASSUME Flaws \subseteq FlawNames
ASSUME Faults \subseteq {"answers are lost", "deletes fail", "looks take time"}

\* By change, the tables that it writes in the order of their keys, and those that it only reads.
Writes == CASE Scenario = "crossing" -> [a |-> <<"t1", "t2">>, b |-> <<"t2", "t3">>]
            [] Scenario = "same"     -> [a |-> <<"t1", "t2">>, b |-> <<"t1", "t2">>]
            [] Scenario = "skew"     -> [a |-> <<"t1", "t2">>, b |-> <<"t3">>]
            [] Scenario = "new"      -> [a |-> <<"n1">>, b |-> <<"t3">>]
            [] Scenario = "alone"    -> [a |-> <<"t1", "t2">>]
            [] Scenario = "beside"   -> [a |-> <<"t1", "t2">>]
            [] Scenario = "read"     -> [a |-> <<"t1", "t2">>]
            [] Scenario = "made"     -> [a |-> <<"n1">>]
Reads == CASE Scenario \in {"skew", "new"} -> [a |-> {"t3"}, b |-> {}]
           [] Scenario \in {"read", "made"} -> [a |-> {"t3"}]
           [] OTHER -> [o \in DOMAIN Writes |-> {}]

\* Tables that somebody else writes, whose four steps are taken as one: where the search is about recoverers.
Beside == CASE Scenario = "beside" -> {"t2"} [] Scenario \in {"read", "made"} -> {"t3"} [] OTHER -> {}

Ops == DOMAIN Writes
Range(s) == {s[i] : i \in DOMAIN s}
Tables == UNION {Range(Writes[o]) \cup Reads[o] : o \in Ops}
IsNew(t) == t = "n1"
Actors == Ops \cup Recoverers    \* a writer has the name of its change

VARIABLES
    seq,      \* table -> its versions: whose, a plan or a restore, by whom restored, and the changes that are in it
    pin,      \* table -> the number of the version that is pinned; 0 for a table that is not there
    log,      \* the commits of the branch
    notes,    \* changes whose note is there
    over,     \* changes whose lease has passed
    flight,   \* puts whose answer was lost, and that may still land
    exp,      \* change -> the pins that it was made on
    act,      \* actor -> where it is, and what it has seen
    skewed    \* changes that were committed although something that they rest on had changed

vars == <<seq, pin, log, notes, over, flight, exp, act, skewed>>

Base == [by |-> "base", kind |-> "plan", who |-> "writer", rows |-> {}]
Idle == [pc |-> "idle", op |-> "none", next |-> 1, pins |-> <<>>, state |-> <<>>, holds |-> FALSE, published |-> FALSE,
         verdict |-> "none"]

Init ==
    /\ seq = [t \in Tables |-> IF IsNew(t) THEN <<>> ELSE <<Base>>]
    /\ pin = [t \in Tables |-> IF IsNew(t) THEN 0 ELSE 1]
    /\ log = <<>> /\ notes = {} /\ over = {} /\ flight = {} /\ skewed = {}
    /\ exp = [o \in Ops |-> pin]
    /\ act = [a \in Actors |-> IF a \in Ops THEN [Idle EXCEPT !.pc = "start", !.op = a] ELSE Idle]

---------------------------------------------------------------------------
(* The store. *)

Logged(o, kind) == \E i \in DOMAIN log : log[i] = [op |-> o, kind |-> kind]
Does(a, does) == act' = [act EXCEPT ![a] = does]
Goes(a, pc) == Does(a, [act[a] EXCEPT !.pc = pc])
Rows(t, i) == IF i \in DOMAIN seq[t] THEN seq[t][i].rows ELSE {}

Planned(o, t) == exp[o][t] + 1
Plan(o, t) == [by |-> o, kind |-> "plan", who |-> "writer", rows |-> Rows(t, exp[o][t]) \cup {o}]
Restore(o, t, a) == [by |-> o, kind |-> "restore", who |-> IF a \in Ops THEN "writer" ELSE "recoverer",
                     rows |-> Rows(t, exp[o][t])]
Moves(t, object) == seq' = [seq EXCEPT ![t] = Append(@, object)]

ReadsHold(o) == \A t \in Reads[o] : pin[t] = exp[o][t]
PinsHold(o) == \A t \in Range(Writes[o]) : pin[t] = exp[o][t]

\* One commit: it compares what it rests on, and moves all pins.
Commits(o) ==
    /\ pin' = [t \in Tables |-> IF t \in Range(Writes[o]) THEN Planned(o, t) ELSE pin[t]]
    /\ log' = Append(log, [op |-> o, kind |-> "forward"])
    /\ skewed' = IF ReadsHold(o) /\ PinsHold(o) THEN skewed ELSE skewed \cup {o}

LosesAnswers == "answers are lost" \in Faults

Land == \E put \in flight :
    /\ flight' = flight \ {put}
    /\ CASE put.what = "note" -> notes' = notes \cup {put.op} /\ UNCHANGED <<seq, pin, log, skewed>>
         [] put.what = "head" -> /\ Len(seq[put.table]) = exp[put.op][put.table]
                                 /\ Moves(put.table, Plan(put.op, put.table))
                                 /\ UNCHANGED <<notes, pin, log, skewed>>
         [] put.what = "commit" -> /\ Len(log) = put.at
                                   /\ Commits(put.op)
                                   /\ UNCHANGED <<notes, seq>>
    /\ UNCHANGED <<over, exp, act>>

\* It never lands.
Vanish == \E put \in flight :
    /\ flight' = flight \ {put}
    /\ UNCHANGED <<seq, pin, log, notes, over, exp, act, skewed>>

Others == \E t \in Beside :
    /\ Len(seq[t]) = 1 /\ pin[t] = 1
    /\ Moves(t, Base)
    /\ pin' = [pin EXCEPT ![t] = 2]
    /\ log' = Append(log, [op |-> "other", kind |-> "forward"])
    /\ UNCHANGED <<notes, over, flight, exp, act, skewed>>

LeaseEnds(o) ==
    /\ o \in (notes \cap Mortal) \ over
    /\ over' = over \cup {o}
    /\ UNCHANGED <<seq, pin, log, notes, flight, exp, act, skewed>>

---------------------------------------------------------------------------
(* The writer. *)

\* What it stands on. (It would refuse what has moved since: a look that proves nothing, left out.)
Begin(w) ==
    /\ act[w].pc = "start"
    /\ exp' = [exp EXCEPT ![w] = pin]
    /\ Goes(w, IF "HeadBeforeNote" \in Flaws THEN "head" ELSE "note")
    /\ UNCHANGED <<seq, pin, log, notes, over, flight, skewed>>

Further(w, next) == IF next > Len(Writes[w]) \/ "CommitBeforeHeads" \in Flaws THEN "commit" ELSE "head"

Note(w) ==
    /\ act[w].pc = "note"
    /\ \/ /\ notes' = notes \cup {w}
          /\ Goes(w, Further(w, act[w].next))
          /\ UNCHANGED flight
       \/ /\ LosesAnswers      \* nothing has moved: a failure, whatever becomes of the note
          /\ flight' = flight \cup {[what |-> "note", op |-> w]}
          /\ Goes(w, "conflict")
          /\ UNCHANGED notes
    /\ UNCHANGED <<seq, pin, log, over, exp, skewed>>

Concludes(w) == Does(w, [act[w] EXCEPT !.pc =
    IF "LoserReportsFirst" \in Flaws THEN "conflict" ELSE IF "LoserLeavesItsHeads" \in Flaws THEN "forget" ELSE "pins"])

\* The lease is looked at before each head and each commit. The writer may stall right behind that look, so what follows
\* may happen although the lease has passed.
LeaseLost(w) ==
    /\ act[w].pc \in {"head", "commit"}
    /\ w \in over
    /\ Concludes(w)
    /\ UNCHANGED <<seq, pin, log, notes, over, flight, exp, skewed>>

MoveHead(w) ==
    LET t == Writes[w][act[w].next]
        free == Len(seq[t]) = exp[w][t]
        late == "HeadBeforeNote" \in Flaws /\ act[w].next = 1 IN
    /\ act[w].pc = "head"
    /\ \/ /\ free
          /\ Moves(t, Plan(w, t))
          /\ Does(w, [act[w] EXCEPT !.next = @ + 1, !.pc = IF late THEN "note" ELSE Further(w, act[w].next + 1)])
          /\ UNCHANGED flight
       \/ /\ ~free
          /\ Concludes(w)
          /\ UNCHANGED <<seq, flight>>
       \/ /\ LosesAnswers
          /\ flight' = flight \cup {[what |-> "head", op |-> w, table |-> t]}
          /\ Goes(w, IF "UnknownIsFailure" \in Flaws THEN "conflict" ELSE "unknown")
          /\ UNCHANGED seq
    /\ UNCHANGED <<pin, log, notes, over, exp, skewed>>

Commit(w) ==
    LET holds == PinsHold(w) /\ (ReadsHold(w) \/ "CommitForgetsReads" \in Flaws)
        t == Writes[w][act[w].next - Len(Writes[w])] IN
    /\ act[w].pc = "commit"
    /\ \/ /\ holds /\ "TableByTable" \notin Flaws
          /\ Commits(w)
          /\ Goes(w, "delete")
          /\ UNCHANGED flight
       \/ /\ holds /\ "TableByTable" \in Flaws       \* a naive writer: pins one table after the other
          /\ pin' = [pin EXCEPT ![t] = Planned(w, t)]
          /\ log' = IF act[w].next = 2 * Len(Writes[w]) THEN Append(log, [op |-> w, kind |-> "forward"]) ELSE log
          /\ Does(w, [act[w] EXCEPT !.next = @ + 1, !.pc = IF act[w].next = 2 * Len(Writes[w]) THEN "delete" ELSE @])
          /\ UNCHANGED <<flight, skewed>>
       \/ /\ ~holds /\ Logged(w, "forward")          \* who took us for dead made our commit
          /\ Goes(w, "delete")
          /\ UNCHANGED <<pin, log, flight, skewed>>
       \/ /\ ~Logged(w, "forward")                   \* lost, or its retries are used up
          /\ Concludes(w)
          /\ UNCHANGED <<pin, log, flight, skewed>>
       \/ /\ LosesAnswers /\ holds /\ "TableByTable" \notin Flaws
          /\ flight' = flight \cup {[what |-> "commit", op |-> w, at |-> Len(log)]}
          /\ Goes(w, CASE "UnknownIsFailure" \in Flaws -> "conflict"
                       [] "UnknownIsSuccess" \in Flaws -> "committed"
                       [] OTHER -> "unknown")
          /\ UNCHANGED <<pin, log, skewed>>
    /\ UNCHANGED <<seq, notes, over, exp>>

Delete(w) ==
    /\ act[w].pc \in {"delete", "forget"}
    /\ \/ notes' = notes \ {w}
       \/ "deletes fail" \in Faults /\ UNCHANGED notes
    /\ Goes(w, IF act[w].pc = "delete" THEN "committed" ELSE "conflict")
    /\ UNCHANGED <<seq, pin, log, over, flight, exp, skewed>>

\* It is killed, or it is told that its outcome is not known. Nobody hears of it again.
Die(w) ==
    /\ w \in Mortal /\ act[w].pc \notin {"start", "committed", "conflict", "unknown"}
    /\ Does(w, [Idle EXCEPT !.pc = "unknown", !.op = w])
    /\ UNCHANGED <<seq, pin, log, notes, over, flight, exp, skewed>>

---------------------------------------------------------------------------
(* Recovery, of a note that was found, or of one's own. Pins are looked at, then heads, then the log. *)

IsRestore(o, object) == object.kind = "restore" /\ object.by = o /\ "RestoresLookForeign" \notin Flaws

State(o, t) ==
    LET p == Planned(o, t)
        n == Len(seq[t]) IN
    CASE n < p -> "not moved"
      [] n >= p /\ (IsRestore(o, seq[t][p]) \/ (n > p /\ IsRestore(o, seq[t][p + 1]))) -> "restored"
      [] OTHER -> IF n > p THEN "several" ELSE IF seq[t][p] = Plan(o, t) THEN "planned" ELSE "once"

\* A pin at or behind the plan, or on something that follows on it, which is not its restore.
PinnedBy(o, t, pinned) ==
    /\ pinned >= Planned(o, t)
    /\ seq[t][Planned(o, t)] = Plan(o, t)
    /\ ~(Len(seq[t]) > Planned(o, t) /\ IsRestore(o, seq[t][Planned(o, t) + 1]))

LookPins(a) ==
    /\ \/ act[a].pc = "pins"
       \/ act[a].pc = "idle"
    /\ \E o \in Ops :
         /\ IF act[a].pc = "pins" THEN o = act[a].op ELSE o \in notes /\ (o \in over \/ "SweepIgnoresLeases" \in Flaws)
         /\ Does(a, [Idle EXCEPT !.pc = "heads", !.op = o,
              !.pins = [t \in Range(Writes[o]) |-> pin[t]],
              !.holds = PinsHold(o) /\ (ReadsHold(o) \/ "RecovererForgetsReads" \in Flaws),
              !.published = Logged(o, "forward")])
    /\ UNCHANGED <<seq, pin, log, notes, over, flight, exp, skewed>>

LookHead(a) ==
    LET o == act[a].op
        t == Writes[o][act[a].next] IN
    /\ act[a].pc = "heads"
    /\ IF "looks take time" \in Faults
       THEN Does(a, [act[a] EXCEPT !.next = @ + 1, !.state = Append(@, State(o, t)),
                                   !.pc = IF act[a].next = Len(Writes[o]) THEN "log" ELSE @])
       ELSE Does(a, [act[a] EXCEPT !.state = [i \in DOMAIN Writes[o] |-> State(o, Writes[o][i])], !.pc = "log"])
    /\ UNCHANGED <<seq, pin, log, notes, over, flight, exp, skewed>>

LookLog(a) ==
    LET o == act[a].op
        states == Range(act[a].state)
        forced == a \in Ops /\ "LoserAlwaysUndoes" \in Flaws
        published == \/ IF "LogAskedFirst" \in Flaws THEN act[a].published ELSE Logged(o, "forward")
                     \/ \E t \in Range(Writes[o]) : PinnedBy(o, t, act[a].pins[t])
        verdict == CASE published /\ "PublishedIsUndone" \notin Flaws -> "published"
                     [] states = {"planned"} /\ act[a].holds /\ ~forced -> "forward"
                     [] OTHER -> "back" IN
    /\ act[a].pc = "log"
    /\ IF verdict = "back" /\ "BackIsKept" \in Flaws /\ a \in Recoverers THEN Goes(a, "stuck")
       ELSE Does(a, [act[a] EXCEPT !.verdict = verdict, !.next = 1, !.pins = <<>>, !.holds = FALSE,
              !.published = FALSE, !.state = IF verdict = "back" THEN @ ELSE <<>>,
              !.pc = CASE verdict = "published" -> "tell" [] verdict = "forward" -> "forward" [] OTHER -> "back"])
    /\ UNCHANGED <<seq, pin, log, notes, over, flight, exp, skewed>>

Again(a) == Does(a, [Idle EXCEPT !.pc = "pins", !.op = act[a].op])

\* A stale note of a published change is told in the log, once.
Tell(a) ==
    LET o == act[a].op IN
    /\ act[a].pc = "tell"
    /\ log' = IF Logged(o, "audit") /\ "ToldTwice" \notin Flaws THEN log ELSE Append(log, [op |-> o, kind |-> "audit"])
    /\ Goes(a, "drop")
    /\ UNCHANGED <<seq, pin, notes, over, flight, exp, skewed>>

Forward(a) ==
    LET o == act[a].op
        holds == PinsHold(o) /\ (ReadsHold(o) \/ "RecovererForgetsReads" \in Flaws) IN
    /\ act[a].pc = "forward"
    /\ CASE Logged(o, "forward") -> Goes(a, "drop") /\ UNCHANGED <<pin, log, skewed>>
         [] ~Logged(o, "forward") /\ holds -> Commits(o) /\ Goes(a, "drop")
         [] OTHER -> Again(a) /\ UNCHANGED <<pin, log, skewed>>
    /\ UNCHANGED <<seq, notes, over, flight, exp>>

Found(a, i, state) == Does(a, [act[a] EXCEPT !.state[i] = state])

\* The heads that a rollback is still to write to: first those that have not moved, then those that have.
ToOccupy(a) == {i \in DOMAIN act[a].state : act[a].state[i] = "not moved" /\ "UnmovedIsNotOccupied" \notin Flaws}
ToUndo(a) == {i \in DOMAIN act[a].state : act[a].state[i] = "planned"}
First(s) == CHOOSE i \in s : \A j \in s : i <= j

Occupy(a) ==
    LET o == act[a].op
        i == First(ToOccupy(a))
        t == Writes[o][i]
        now == State(o, t) IN
    /\ act[a].pc = "back" /\ ToOccupy(a) # {}
    /\ "UndoesFirst" \in Flaws => ToUndo(a) = {}
    /\ CASE now = "not moved" -> Moves(t, Restore(o, t, a)) /\ Found(a, i, "restored")
         [] now = "restored" \/ "LostPlaceIsForeign" \in Flaws -> Found(a, i, now) /\ UNCHANGED seq
         \* the writer was quicker, and the change may be published now, and others may have built on it
         [] OTHER -> Again(a) /\ UNCHANGED seq
    /\ UNCHANGED <<pin, log, notes, over, flight, exp, skewed>>

Undo(a) ==
    LET o == act[a].op
        i == First(ToUndo(a))
        t == Writes[o][i]
        now == State(o, t) IN
    /\ act[a].pc = "back" /\ ToUndo(a) # {}
    /\ ToOccupy(a) = {} \/ "UndoesFirst" \in Flaws
    /\ CASE now = "planned" -> Moves(t, Restore(o, t, a)) /\ Found(a, i, "restored")
         [] now = "restored" -> Found(a, i, now) /\ UNCHANGED seq
         [] OTHER -> Again(a) /\ UNCHANGED seq
    /\ UNCHANGED <<pin, log, notes, over, flight, exp, skewed>>

RestoredAt(o, t) == IF seq[t][Planned(o, t)].kind = "restore" THEN Planned(o, t) ELSE Planned(o, t) + 1

\* What was restored is pinned, if it has to be; a table that was to be made is not there, before and after.
PublishBack(a) ==
    LET o == act[a].op
        restored == {Writes[o][i] : i \in {j \in DOMAIN act[a].state : act[a].state[j] = "restored"}}
        mine == {t \in restored : exp[o][t] > 0 /\ pin[t] < RestoredAt(o, t)}
        done == "NoteDeletedBeforePublish" \in Flaws IN
    /\ act[a].pc = "back" /\ ToOccupy(a) = {} /\ ToUndo(a) = {}
    /\ CASE Logged(o, "back") -> Goes(a, "drop") /\ UNCHANGED <<pin, log>>
         [] ~Logged(o, "back") /\ \A t \in mine : pin[t] = exp[o][t] ->
              /\ pin' = [t \in Tables |-> IF t \in mine THEN RestoredAt(o, t) ELSE pin[t]]
              /\ log' = Append(log, [op |-> o, kind |-> "back"])
              /\ Goes(a, "drop")
         [] OTHER -> Again(a) /\ UNCHANGED <<pin, log>>
    /\ done => o \notin notes
    /\ UNCHANGED <<seq, notes, over, flight, exp, skewed>>

DropEarly(a) ==
    /\ "NoteDeletedBeforePublish" \in Flaws
    /\ act[a].pc = "back" /\ ToOccupy(a) = {} /\ ToUndo(a) = {}
    /\ notes' = notes \ {act[a].op}
    /\ UNCHANGED <<seq, pin, log, over, flight, exp, act, skewed>>

Drop(a) ==
    LET o == act[a].op IN
    /\ act[a].pc = "drop"
    /\ \/ notes' = notes \ {o}
       \/ "deletes fail" \in Faults /\ UNCHANGED notes
    /\ IF a \in Recoverers THEN Does(a, Idle)
       ELSE Does(a, [Idle EXCEPT !.op = a, !.pc = IF act[a].verdict = "back" THEN "conflict" ELSE "committed"])
    /\ UNCHANGED <<seq, pin, log, over, flight, exp, skewed>>

\* It dies, and another begins. A heal, which only rolls forward, gives up behind its look.
Restart(r) ==
    /\ act[r].pc # "idle"
    /\ act[r].pc # "stuck"
    /\ Does(r, Idle)
    /\ UNCHANGED <<seq, pin, log, notes, over, flight, exp, skewed>>

---------------------------------------------------------------------------
Recover(a) ==
    \/ LookPins(a) \/ LookHead(a) \/ LookLog(a) \/ Tell(a) \/ Forward(a)
    \/ Occupy(a) \/ Undo(a) \/ PublishBack(a) \/ DropEarly(a) \/ Drop(a)

Ended == \A a \in Actors : act[a].pc \in {"idle", "committed", "conflict", "unknown"}

\* Everything has come to its end; any other state without a next one is a deadlock.
Finished == Ended /\ notes = {} /\ flight = {} /\ UNCHANGED vars

Next ==
    \/ \E w \in Ops : Begin(w) \/ Note(w) \/ LeaseLost(w) \/ MoveHead(w) \/ Commit(w) \/ Delete(w) \/ Die(w) \/ LeaseEnds(w)
    \/ \E a \in Actors : Recover(a)
    \/ \E r \in Recoverers : Restart(r)
    \/ Land \/ Vanish \/ Others \/ Finished

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Recoverers)

---------------------------------------------------------------------------
(* What must hold. *)

\* A change is in the log exactly if it is in every one of its tables, and otherwise it is in none, as readers see them.
NoHalfCommit == \A o \in Ops : \A t \in Range(Writes[o]) : Logged(o, "forward") <=> o \in Rows(t, pin[t])

\* Whoever was told that it is committed finds it in the log; so it is whole, now and ever after.
CommittedIsInHistory == \A w \in Ops : act[w].pc = "committed" => Logged(w, "forward")

\* Whoever was told that it failed is not in the log, and never will be.
FailedIsNotInHistory == \A w \in Ops : act[w].pc = "conflict" => ~Logged(w, "forward")

\* A change is committed, rolled back and told of at most once, and never both committed and rolled back.
OneOutcome == \A i, j \in DOMAIN log : (i # j /\ log[i].op = log[j].op) => {log[i].kind, log[j].kind} = {"forward", "audit"}

\* A version that is pinned is there, and is no tombstone.
PinnedIsThere == \A t \in Tables : pin[t] > 0 => pin[t] <= Len(seq[t]) /\ ~(IsNew(t) /\ seq[t][pin[t]].kind = "restore")

\* A head that is ahead of its pin has a note that tells why. So without a note, head and pin are equal.
DriftIsExplained == \A t \in Tables :
    Len(seq[t]) = pin[t] \/ (IsNew(t) /\ pin[t] = 0) \/ \E o \in notes : t \in Range(Writes[o])

\* What was committed rested on what was there (P8).
NoWriteSkew == skewed = {}

\* Nobody but the writer itself undoes a change whose lease has not passed.
OnlyTheDeadAreUndone == \A t \in Tables : \A i \in DOMAIN seq[t] :
    seq[t][i].kind = "restore" /\ seq[t][i].who = "recoverer" => seq[t][i].by \in over

=============================================================================
