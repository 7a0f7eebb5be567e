/**
 * What the panels of one replica use of their board: the replica's model and frame, and actions that the cluster's board
 * carries out. Ids are the replica's own.
 */

import type { PanelBoard } from "../board/board.ts";
import type { ClusterBoard } from "./cluster_board.ts";
import type { Replica } from "./replica.ts";

export class ReplicaBoard implements PanelBoard {
  unit = 1;
  narrow = true; // its panels stand side by side
  cluster: ClusterBoard;
  replica: Replica;

  constructor(cluster: ClusterBoard, replica: Replica) {
    this.cluster = cluster;
    this.replica = replica;
  }

  get model() {
    return this.replica.model;
  }

  get theme() {
    return this.cluster.theme;
  }

  get tooltip() {
    return this.cluster.tooltip;
  }

  get signal() {
    return this.cluster.signal;
  }

  get step() {
    return this.replica.stepAt(this.cluster.state.at);
  }

  get frame() {
    return this.model.frame(this.step);
  }

  /** The selected request's id here, or null. */
  get selected() {
    const { selected } = this.cluster;
    const place = selected?.places.findLast(({ replica }) => replica === this.replica.id);
    return place?.its ?? null;
  }

  get store() {
    const { touched } = this.cluster.state;
    return { step: this.step, selected: this.selected, touched, block: null };
  }

  select(its: number | null) {
    const id = this.replica.requests.get(Number(its));
    if (id !== undefined) this.cluster.select(id);
  }

  lookAt() {}
}
