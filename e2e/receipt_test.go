package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/outbox-worker/outbox-worker/internal/simulator"
	"github.com/outbox-worker/outbox-worker/outbox"
)

// receiptOf waits for the receipt of a charge and returns its reference, which is the
// Message-ID's.
func (b *bundle) receiptOf(reference string) string {
	b.t.Helper()
	const receipt = `(SELECT f.reference FROM outbox.intents f JOIN outbox.intents i ON i.id = f.parent_id
		JOIN outbox.catalog c ON c.id = f.catalog_id WHERE i.reference = $1 AND c.name = 'send_receipt')`
	b.await(receipt+" IS NOT NULL", reference)
	return value[string](b, receipt, reference)
}

// oneMail compares the mail server's count with one mail: by Message-ID and by recipient.
func (b *bundle) oneMail(receipt, to string) {
	b.t.Helper()
	mails := b.sim.Effects(simulator.Mail)
	byID, byRecipient := 0, 0
	for _, m := range mails {
		if m.Reference == receipt {
			byID++
		}
		if slices.Contains(m.Mail.To, to) {
			byRecipient++
		}
	}
	if byID != 1 || byRecipient != 1 {
		b.t.Errorf("%d mails under the receipt's Message-ID and %d to %s, want one", byID, byRecipient, to)
	}
}

// A receipt goes out once for a charge, whoever dies between the two and however often
// the charge is asked for.
func TestAReceiptIsSentOnceAlthoughTheWorkerDiesBetweenChargeAndReceipt(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	o := full("1")
	reference := b.charge(o)
	victim := b.hookedWorker("victim", afterSettle, reference, "OUTBOX_WORKER__IDLE_POLL=1h")
	victim.await(b)
	b.again(o, reference, outbox.AnswerSettled, outbox.Succeeded)
	victim.kill()
	b.again(o, reference, outbox.AnswerSettled, outbox.Succeeded)
	if n := len(b.sim.Effects(simulator.Mail)); n != 0 {
		t.Fatalf("%d mails before anybody could have created the receipt", n)
	}

	b.worker("other")
	receipt := b.receiptOf(reference)
	b.again(o, reference, outbox.AnswerSettled, outbox.Succeeded)
	b.state(receipt, outbox.Succeeded)
	b.again(o, reference, outbox.AnswerSettled, outbox.Succeeded)
	b.quiet()
	b.oneMail(receipt, o.Email)
	b.counted(simulator.Charges, reference, 1, 1)
	b.compare()
}

func TestAReceiptWaitsForTheMailServerAndIsSentOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(patientCall, patientLease))
	b.sim.MailDown()
	b.worker("worker")
	o := full("1")
	reference := b.charge(o)
	b.state(reference, outbox.Succeeded)
	receipt := b.receiptOf(reference)
	// It has been tried in vain several times, which costs the charge nothing.
	b.await(`(SELECT sends >= 3 FROM outbox.outbox o JOIN outbox.intents i ON i.id = o.intent_id WHERE i.reference = $1)`, receipt)
	b.again(o, reference, outbox.AnswerSettled, outbox.Succeeded)
	if n := b.sim.Requests(simulator.Mail, ""); n != 0 {
		t.Errorf("%d mails reached a server that is down", n)
	}

	b.must(b.sim.MailUp(b.ctx))
	b.state(receipt, outbox.Succeeded)
	b.quiet()
	b.oneMail(receipt, o.Email)
	b.counted(simulator.Mail, receipt, 1, 1)
	if n := b.sim.Recipients(o.Email); n != 1 {
		t.Errorf("the recipient was named %d times, want 1", n)
	}
	b.counted(simulator.Charges, reference, 1, 1)
	b.compare()
}

// A mail server cannot be asked whether it took a mail, and knows no keys: a worker that
// dies after the final dot leaves a receipt of which nobody knows, and no second one.
func TestAReceiptWhoseWorkerDiesAtTheDotIsNotSentAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, withTimes(killCall, killLease))
	o := full("1")
	reply := b.sim.Hold(simulator.Mail, "", simulator.AfterEffect)
	victim := b.worker("victim")
	reference := b.charge(o)
	b.atProvider(func(s simulator.Snapshot) bool { return s.Held(simulator.Mail, "") == 1 })
	victim.kill()
	receipt := b.receiptOf(reference)

	b.worker("other")
	b.state(receipt, outbox.NeedsReview)
	reply()
	b.again(o, reference, outbox.AnswerSettled, outbox.Succeeded)
	b.state(b.charge(plain("2")), outbox.Succeeded)
	b.quiet()
	b.oneMail(receipt, o.Email)
	b.counted(simulator.Mail, receipt, 1, 1)
	b.counted(simulator.Charges, reference, 1, 1)
}

// A follow-on that cannot be rendered is a person's business, who has all of them created
// again. Those that are there already are the same ones: their keys come from the parent.
func TestFollowOnsThatAreCreatedAgainAreTheSameOnes(t *testing.T) {
	t.Parallel()
	text := withTimes(patientCall, patientLease)
	const receipt = `payload: '{to: .intent.payload.email,`
	b := setup(t, strings.Replace(text, receipt, `payload: 'if .intent.payload.email == "none" then error("no address") else . end | {to: .intent.payload.email,`, 1))
	b.worker("worker")
	o := full("1")
	o.Email = "none"
	reference := b.charge(o)
	const rejected = `(SELECT count(*) FROM outbox.history WHERE event = 'follow_on_rejected') = $1`
	for again := range 3 {
		if again > 0 {
			says[struct{}](b, 0, "outbox-worker", "replay", reference, "--reason", "the address is to be had now")
		}
		b.await(rejected, again+1)
	}
	b.quiet()
	if n := value[int](b, `count(*)::int FROM outbox.intents WHERE parent_id IS NOT NULL`); n != 1 {
		t.Errorf("%d follow-ons, want the shipment alone", n)
	}
	if n := len(b.sim.Effects(simulator.Shipments)); n != 1 {
		t.Errorf("%d shipments, want 1", n)
	}
	b.counted(simulator.Charges, reference, 1, 1)
	b.again(o, reference, outbox.AnswerSettled, outbox.Succeeded)
}
